"""Word banks of the synthetic corpus.

Names of people, venues and books share no word with each other nor with the small talk, and the small talk has none of
the words that questions are phrased with; so the only way from a question to the far end of a chain is the chain.
"""

from __future__ import annotations


def _words(text: str, separator: str | None = None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(separator))


FIRST_NAMES = _words(
    """Ada Adil Agnes Akira Albin Alma Amara Anders Anouk Anton Aroha Arvid Astrid Aylin Bela Benedikt Berit Bilal
    Bodil Bruna Caleb Camila Carmen Cedric Chidi Clara Cosima Dalia Damir Daphne Darius Delia Dmitri Edith Efua Eino
    Elena Elif Emeka Enzo Esme Ewan Fabio Farah Felix Fenna Fiona Florin Freya Gael Gemma Gideon Greta Gustav Hamza
    Hana Harriet Hector Hedda Henrik Hiro Ida Ignacio Ilse Imani Imre Ines Ingrid Isak Ivana Jasper Jelena Joaquin
    Johanna Jonas Judit Kaja Kamal Karim Katya Keiko Kiran Klaus Kwame Laila Lars Leandro Leonie Lev Liang Linnea
    Lorenz Lucia Magnus Maia Malik Marek Marta Matteo Mei Mikkel Milena Minna Mirza Nadia Naoki Nils Noor Odile Olaf
    Orla Oskar Paloma Pavel Petra Priya Rafael Ramona Renata Rhea Roman Rosalind Ruben Sabine Salma Samir Sanna
    Selma"""
)
LAST_NAMES = _words(
    """Abara Achterberg Adebayo Aguilar Albrecht Almeida Amundsen Andrade Arslan Asante Baptiste Barros Beaumont
    Belmonte Bergstrom Bianchi Bjork Borkowski Brandt Caruso Castellano Cermak Chaudhry Cisse Corrigan Costa Dahlberg
    Demir Desrosiers Diallo Dragomir Duarte Eklund Engstrom Erdogan Espinoza Falk Farkas Ferrante Fitzgerald Fonseca
    Fujimoto Galvan Garibaldi Ghosh Goncalves Grigoryan Gunnarsson Haddad Hakimi Halvorsen Hashimoto Herrera Hidalgo
    Holmgren Horvat Ibarra Ibrahim Iversen Jablonski Jankovic Jimenez Johansen Kaplan Karlsson Kaufmann Kavanagh
    Kimura Kobayashi Kowalczyk Kruger Kuznetsov Lachance Lindqvist Lombardi Lundgren Macleod Malhotra Marchetti
    Mbeki Mendoza Mikkelsen Molnar Moreau Nakamura Navarro Nazari Nguyen Nordstrom Novak Obasi Odhiambo Okafor
    Oliveira Orlov Osterberg Pacheco Papadakis Pereira Petrov Popescu Quintero Radovic Ramanujan Reinholt Ribeiro
    Rosenthal Rousseau Sadowski Salazar Santoro Sarkisian Schreiber Sepulveda Shimizu Sokolov Stavros Szabo Takahashi
    Tanaka Tavares Thorvald Ueda Vasquez Villanueva Wierzba Yilmaz Zielinski"""
)
VENUE_FIRST = _words(
    """Copper Velvet Amber Crooked Ivory Scarlet Drowsy Lucky Marble Hollow Gilded Humble Merry Cobalt Painted Rusty
    Sleepy Twisted Wandering Weathered Windy Wooden Crimson Dancing Dusty Faded Floating Forgotten Grand Howling Jolly
    Laughing Lonesome Mossy Nimble Noble Olive Patient Pewter Polished Prickly Roaring Royal Sapphire Singing Slanted
    Smiling Speckled Spiral Stubborn Tilted Tin Turquoise Upper Violet Whistling Woolly Yonder Zealous Burnished Chipped
    Dapper Eager Fabled"""
)
VENUE_SECOND = _words(
    """Lantern Anchor Heron Badger Kettle Thimble Fiddle Compass Otter Walrus Barrel Bellows Candle Chimney Corkscrew
    Crane Dolphin Falcon Ferret Flagon Gander Goblet Hammer Hare Harp Hedgehog Helmet Hound Keg Kingfisher Ladle Lark
    Lobster Magpie Mallet Marten Mermaid Mill Moth Nettle Oyster Parrot Pelican Piper Plough Puffin Quail Raven
    Rooster Saddle Salmon Sextant Sparrow Stag Swan Teapot Thistle Trumpet Turnstile Weasel Wren"""
)
VENUE_KINDS = ("Tavern", "Hall", "Library", "Pavilion", "Gallery", "Teahouse", "Cellar", "Arcade")
TITLE_FIRST = _words(
    """Glass Silent Burning Paper Hidden Broken Frozen Distant Second Salt Thousandth Blind Borrowed Bright Buried
    Careless Clockwork Cruel Divided Drowned Empty Endless Fallen Feathered Fearless Final Foreign Fragile Ghostly
    Golden Hungry Inland Invisible Iron Kindly Late Liquid Lost Luminous Midnight Mirrored Naked Narrow Northern
    Obedient Ordinary Pale Perfect Quiet Reluctant Restless Ruined Sacred Secret Shallow Sinking Southern Stolen
    Tender Unfinished Unwritten Vanishing Wicked Winter"""
)
TITLE_SECOND = _words(
    """Orchard Cartographer Tide Harbour Daughter Empire Alphabet Archive Assassin Astronomer Atlas Beekeeper Bride
    Cathedral Century Chorus Citizen Confession Continent Country Courtier Dynasty Echo Emperor Envoy Exile Feast
    Fever Fortress Geometry Governor Heiress Horizon Hermit Inheritance Island Judge Kingdom Labyrinth Lighthouse
    Machine Memoir Meridian Monastery Nocturne Oath Oracle Pilgrim Prophet Province Requiem Republic River Sermon
    Shadow Shepherd Siege Soldier Testament Traveller Widow"""
)

MAKER_STARTS = _words("bal cor dre fen gul har jov kel lum mir nor pel quo ras sel tor ulm vek wiz zan")
MAKER_MIDDLES = _words("a e i o u ari elo ina")
MAKER_ENDS = _words(
    "bex dal fin gon kor lis mar nix pol rith sun tek vane wick zor bro cal dun fop gar hin jip kas lor mun"
)
"""Syllables of 4,000 invented makers' names."""

_TOPICS = """
garden: tomatoes ferns compost hedge tulips greenhouse trellis seedlings mulch basil rake pergola snails rhubarb
 | soggy shady overgrown stubby fragrant wilted | watering pruning repotting weeding planting digging
kitchen: dumplings sourdough risotto skillet paprika broth lentils oven cardamom noodles blender marinade crust pickles
 | spicy burnt creamy salty crisp bland | baking simmering tasting roasting kneading freezing
cycling: chain saddlebag derailleur gravel helmetstrap puncture handlebar headwind tyre pannier brake spokes bell pump
 | squeaky wobbly steep muddy smooth flat | oiling adjusting cleaning replacing climbing patching
software: compiler database endpoint latency refactor pipeline container bug branch cache parser deployment schema test
 | flaky nested stale verbose deprecated faulty | debugging profiling merging rewriting deploying shipping
music: cello chord rehearsal metronome melody drummer amplifier setlist ballad vinyl encore tuner scales rhythm
 | offbeat gentle loud catchy dissonant mellow | practising recording tuning transcribing humming mixing
health: migraine physiotherapist dosage posture allergy vitamin clinic stretch knee sleep checkup inhaler rash pulse
 | sore dizzy mild chronic itchy rested | tracking soothing treating monitoring easing checking
money: mortgage invoice pension budget receipt dividend refund tariff savings deposit loan insurance audit allowance
 | overdue fixed taxable modest hefty recurring | filing paying splitting forecasting transferring auditing
travel: passport hostel ferry itinerary layover suitcase visa monsoon platform ticket border dunes guide scooter
 | delayed remote humid crowded scenic cheap | packing booking cancelling mapping boarding extending
pets: kitten leash aquarium vet parakeet hamster litter terrier collar grooming kennel tortoise treats fur
 | playful shy greedy clumsy noisy loyal | feeding brushing training walking rescuing bathing
home: radiator plaster gutter curtain drill boiler shelf wallpaper tap attic carpet fuse hinge basement
 | leaky drafty cramped cosy musty spotless | painting fixing sanding mounting unclogging insulating
football: penalty midfield referee derby striker offside keeper tournament corner substitute bench league whistle cup
 | tense goalless lopsided heroic scrappy rowdy | defending scoring dribbling coaching cheering marking
astronomy: telescope nebula comet eclipse tripod meteor observatory orbit supernova eyepiece crater galaxy aurora
 | faint cloudless blurry rare spectral dim | observing photographing aligning charting focusing logging
sewing: bobbin zipper denim hem button pattern seam fabric lining needle thread pocket sleeve patchwork
 | frayed snug checkered wrinkled floppy striped | stitching ironing cutting altering measuring dyeing
office: spreadsheet agenda printer deadline colleague memo stapler presentation intern badge cubicle slides minutes
 | tedious urgent confusing productive messy vague | drafting presenting scheduling postponing summarising approving
weather: thunderstorm drizzle frost forecast humidity umbrella blizzard fog heatwave breeze hail puddle sunrise sleet
 | chilly gusty balmy damp sunny grey | sheltering drying waiting forecasting enduring shovelling
film: trailer documentary screenplay subtitle popcorn sequel director matinee plot actor cinema soundtrack scene prop
 | slow gripping sappy overlong hilarious bleak | watching filming editing streaming reviewing skipping
running: marathon sprint blister pacing sneakers hill interval warmup cramps treadmill finish stamina jog shoelace
 | exhausting brisk hilly early painful breezy | training stretching sprinting jogging recovering pacing
language: grammar vocabulary accent verb tutor flashcard dialect pronunciation idiom translation tense homework vowel
 | tricky irregular fluent formal guttural funny | memorising pronouncing translating revising listening spelling
woodwork: chisel plywood varnish lathe dowel workbench sawdust oak clamp veneer joint plank rasp glue
 | knotty uneven glossy sturdy warped splintered | carving gluing planing varnishing sawing assembling
photography: lens shutter aperture darkroom portrait exposure flash negative album filter landscape slide print
 | grainy overexposed candid overlit sharp moody | developing cropping framing printing scanning retouching
school: exam essay lecture thesis seminar semester lab professor tuition diploma cafeteria chemistry algebra notebook
 | difficult boring graded optional lengthy brilliant | studying revising lecturing grading submitting enrolling
camping: tent campfire rucksack headlamp mosquito canoe trail thermos sleepingbag firewood matches torch stream hammock
 | soaked starry rocky peaceful cold smoky | hiking pitching paddling foraging grilling unpacking
games: dice puzzle chess controller quest dungeon tokens scoreboard bracket cards joystick expansion riddle boss
 | addictive unfair cooperative frustrating retro quick | shuffling levelling bluffing solving losing winning
neighbours: landlord staircase parcel recycling doorbell fence party barbecue lawnmower rent elevator noise keys mailbox
 | grumpy polite nosy absent generous chatty | complaining borrowing returning celebrating whispering moving
"""


def _parse(text: str) -> tuple[dict[str, tuple[str, ...]], ...]:
    topics = []
    for block in text.strip().replace("\n ", " ").splitlines():
        nouns, adjectives, gerunds = block.partition(":")[2].split("|")
        topics.append({"n": tuple(nouns.split()), "a": tuple(adjectives.split()), "v": tuple(gerunds.split())})
    return tuple(topics)


TOPICS = _parse(_TOPICS)
"""Small talk by topic: n nouns, a adjectives, v gerunds."""

COMMON: dict[str, tuple[str, ...]] = {
    "t": _words(
        "this morning|last night|on Tuesday|before lunch|after work|over the weekend|for an hour|all afternoon|twice"
        "|since Monday|at dawn|during the break|on the tram|around noon|well past nine|yet again|at last"
        "|between two calls|without a pause|on Sunday",
        "|",
    ),
    "o": _words(
        "annoyed|relieved|curious|tired|delighted|puzzled|proud of myself|nervous|hopeful|bored|impatient|calm"
        "|overwhelmed|amused|grateful|sceptical",
        "|",
    ),
    "k": tuple(str(n) for n in (2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 14, 15, 18, 20, 24, 25, 30, 36, 40, 45, 60, 75, 90)),
    "c": _words(
        "Lisbon|Tromso|Gdansk|Kyoto|Oaxaca|Tbilisi|Nairobi|Valparaiso|Ghent|Izmir|Tallinn|Dakar|Hobart|Quito|Bergen"
        "|Palermo|Busan|Leipzig|Halifax|Porto|Zagreb|Cork|Malmo|Accra",
        "|",
    ),
}
"""Fillers of every topic: t times, o moods, k counts, c towns."""

USER_FRAMES = _words(
    """The {n} came out {a} {t} and I am {o}.
    I spent {k} minutes {v} the {n} {t}.
    How do you deal with {a} {n} when {v} takes {k} days?
    Any idea why the {n} gets so {a} after {v}?
    My {g} {n} broke while I was {v} {t}.
    Could you compare the {g} with the {h} for {v}?
    I am {o}: the {n} and the {m} do not fit.
    We are off to {c} for {k} days, mostly for {v}.
    Is it normal that {n} and {m} turn {a} {t}?
    I gave up {v} the {n}; the {m} was too {a}.
    A man in {c} sold me a {a} {n} for {k} euros.
    Please help me plan {v} with a {g} and {k} {n}.
    My sister calls the {n} {a}, I call it {b}.
    The {g} manual says nothing about {v} a {a} {n}.
    Still {o} about the {m}, so I tried {v} {t}.
    What would you do with {k} {a} {n}?
    {v} again {t}, and the {n} looks {b}.
    They moved the {n} to {c}, which left me {o}.
    Nothing but {a} {n} {t}; the {m} can wait.
    Can a {n} from {g} replace the {m}?
    I ordered a {h} {n} {t} and it arrived {a}.
    Remind me to go on {v} the {m} {t}.
    After {k} tries the {n} is {a} at last.
    Everyone in {c} seems to be {v} the {n}.
    It feels {a} to be {v} without a {n}.
    Explain {v} to me as if the {n} were a {m}.
    The {n} costs {k} more than the {g} one, odd.
    I dreamt of a {a} {m} {t}.
    Half of the {n} were {a}, the rest {b}.
    Do I need a {n} before {v} the {m}?
    My cousin from {c} keeps {v} the {n} {t}.
    Our {n} is {a}, so {v} has to wait {k} weeks.""",
    "\n",
)
"""Sentences of users: n, m nouns; a, b adjectives; v gerund; g, h makers; t, o, k, c as in COMMON."""

ASSISTANT_FRAMES = _words(
    """Start with the {n} and leave the {m} alone for now.
    A {a} {n} usually means that {v} went on too long.
    Try {v} for {k} minutes, then check the {n}.
    The {g} is sturdier, the {h} is easier on the {n}.
    Being {o} is understandable; {v} takes practice.
    In {c} people keep the {n} {a} by {v} slowly.
    Keep a list: {n}, {m}, and {k} spare parts.
    If the {n} stays {a}, swap the {m} first.
    That sounds {a}; give the {n} a rest {t}.
    Most guides put {v} before the {m}.
    You could ask {g} for a new {n}.
    It depends on the {m}: {a} ones need {v}, {b} ones do not.
    Here is a plan with {k} steps, beginning with the {n}.
    Do not worry about the {n}, {b} is fine.
    Set aside {k} euros for the {m}, just in case.
    The trick is {v} while the {n} is still {a}.
    Rather than {v}, look at the {m} under good light.
    With a {h} you would need {k} {n} at most.
    Somewhere near {c} there is a shop for {a} {n}.
    Take a photo of the {n} so we can compare it {t}.
    Both the {n} and the {m} can be {a} at once.
    I would stop {v} {t} and see if the {n} changes.
    Another {n} helps, provided the {m} is not {b}.
    Good question: {v} is {a} mostly because of the {n}.
    Glad to hear the {n} turned out {a}.
    Label each {n}, otherwise the {m} gets {b}.
    Ask around in {c}; {v} is popular there.
    That {g} has been {a} for {k} weeks, return it.
    Small steps: {n} today, {m} {t}.
    You sound {o}, so keep the {n} simple.
    Measure the {n} {k} times before {v}.
    One {a} {m} will not spoil the {n}.""",
    "\n",
)
"""Sentences of assistants, same slots."""

MENTION_FRAMES = _words(
    """{p} came along and thought the {n} was {a}.
    Had lunch with {p} {t}, mostly about {v}.
    {p} is {o} about the {m}.
    Called {p} {t}, no answer.
    {p} owes me {k} euros for the {n}.
    Went {v} with {p} {t}.
    {p} sends greetings from {c}.
    Sat at the {w} {t} with a {a} {n}.
    The {w} was {a} {t}, full of people {v}.
    {p} had to leave the {w} {t}.
    Two more chapters of {x} {t}, then {v}.
    My copy of {x} got {a} next to the {n}.
    The birthday of {p} is close, maybe a {n} from {c}.
    Left my {n} at the {w} {t}.""",
    "\n",
)
"""Sentences that name people (p), venues (w) and books (x) without saying anything that a question asks for."""

INTRODUCED = (
    ("introduced", "{a} introduced me to {b} at the {v}."),
    ("introduced", "At the {v} {a} introduced me to {b}."),
    ("together", "{a} brought {b} and me together at the {v}."),
    ("presented", "{a} presented {b} to me over drinks at the {v}."),
    ("hands", "Shook hands with {b} at the {v}, all thanks to {a}."),
    ("beside", "{a} seated me beside {b} at the {v}, we talked for hours."),
)
"""How users tell of an introduction (a brings b to the venue v): cue word and sentence."""

RECOMMENDED = (
    ("recommended", "{a} recommended {x} to me."),
    ("recommended", "{x} was warmly recommended by {a}."),
    ("pressed", "{a} pressed a copy of {x} into my hands."),
    ("swears", "{a} swears by {x}, so it is next on my pile."),
    ("lent", "{a} lent me {x} and wants it back by spring."),
    ("urged", "{a} urged me to pick up {x}."),
)
"""How users tell of a recommendation (a names the book x): cue word and sentence."""
