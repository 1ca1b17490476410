import gc
import hashlib
import json
import re
import tracemalloc
from collections import defaultdict
from datetime import UTC, datetime
from itertools import combinations, pairwise

import pytest

from schemas.errors import UsageError
from transforms import synth_words as words
from transforms.records import Question, Session
from transforms.synth import question_line, records, session_line, write

TYPES = {"single-hop", "multi-hop-introduction", "multi-hop-recommendation", "temporal", "unanswerable"}
FUNCTION_WORDS = {
    *(
        "a",
        "and",
        "another",
        "at",
        "by",
        "did",
        "had",
        "i",
        "in",
        "me",
        "my",
        "of",
        "one",
        "or",
        "that",
        "the",
        "there",
    ),
    *("through", "to", "took", "was", "where", "which", "who", "whom"),
}


def tokens(text):
    return set(re.findall(r"\w+", text.lower()))


def split(made):
    made = list(made)
    sessions = [r for r in made if isinstance(r, Session)]
    return sessions, [r for r in made if isinstance(r, Question)]


def interactions(sessions):
    """Text of each interaction by the id of its user message, in order."""
    return {
        (s.case_id, u.id): f"{u.content} {a.content}"
        for s in sessions
        for u, a in zip(s.messages[::2], s.messages[1::2], strict=True)
    }


@pytest.mark.parametrize(("size", "cases"), [(10, 1), (10, 10), (137, 3), (4_500, 1), (1_000, None)])
def test_size_is_exact_and_everything_resolves(size, cases):
    sessions, questions = split(records(size, 5, cases))
    units = interactions(sessions)
    assert len(units) == size == sum(len(s.messages) for s in sessions) // 2
    assert len({s.case_id for s in sessions}) == (cases or size // 200)
    assert len({(s.case_id, s.session_id) for s in sessions}) == len(sessions)
    assert len({(q.case_id, q.question_id) for q in questions}) == len(questions)
    known = {(s.case_id, s.session_id) for s in sessions}
    for question in questions:
        assert all((question.case_id, m) in units for m in question.gold_message_ids)
        assert all((question.case_id, s) in known for s in question.gold_session_ids)
        assert question.answerable == bool(question.gold_message_ids) == (question.question_type != "unanswerable")
        assert (question.answer is None) != question.answerable
    if size // (cases or 5) >= 4:
        assert {q.question_type for q in questions} == TYPES


def test_sessions_are_in_order_of_time_over_years_and_questions_come_after():
    sessions, questions = split(records(3_000, 1, 1))
    times = [s.started_at for s in sessions]
    assert times == sorted(set(times))
    assert (times[-1] - times[0]).days > 3 * 365
    assert min(q.asked_at for q in questions) > times[-1]
    assert max(len(s.messages) // 2 for s in sessions) == 9


def test_same_arguments_same_bytes_and_another_seed_another_corpus(tmp_path):
    first = write(str(tmp_path / "a"), 700, 3, 2)
    again = write(str(tmp_path / "b"), 700, 3, 2)
    other = write(str(tmp_path / "c"), 700, 4, 2)

    def counts(made):
        return {name: count for name, count in made.items() if isinstance(count, int)}

    def digest(folder):
        files = sorted(p for p in (tmp_path / folder).rglob("*") if p.is_file())
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}

    assert counts(first) == counts(again)
    assert first["interactions"] == 700
    assert digest("a") == digest("b")
    assert set(digest("a")) == {"sessions-00000.jsonl", "questions.jsonl", "entities.jsonl", "relations.jsonl"}
    assert all(digest("a")[name] != digest("c")[name] for name in digest("c"))
    assert other["questions"] == first["questions"]


def test_bytes_stay_the_same_over_releases():
    digest = hashlib.sha256()
    for record in records(2_600, 7, 2):
        digest.update(session_line(record) if isinstance(record, Session) else question_line(record))
    assert digest.hexdigest() == GOLDEN


GOLDEN = "cdb32d8e8cc48b10804340d623ac2085004132839ca49fb74b762dabfa448562"


def test_a_case_depends_on_seed_number_and_size_only():
    of_two = [r for r in records(600, 9, 2) if r.case_id == "user-000001"]
    of_five = [r for r in records(1_500, 9, 5) if r.case_id == "user-000001"]
    assert of_two == of_five


def test_lines_are_tagloom_jsonl(tmp_path):
    made = write(str(tmp_path), 300, 1, 1)
    lines = [json.loads(line) for line in (tmp_path / "sessions-00000.jsonl").read_text().splitlines()]
    assert len(lines) == made["sessions"]
    assert set(lines[0]) == {"case_id", "session_id", "started_at", "messages"}
    assert set(lines[0]["messages"][0]) == {"role", "content", "id"}
    assert datetime.fromisoformat(lines[0]["started_at"]).tzinfo == UTC
    asked = [json.loads(line) for line in (tmp_path / "questions.jsonl").read_text().splitlines()]
    assert len(asked) == made["questions"]
    assert set(asked[0]) == {
        "case_id", "question_id", "question", "type", "asked_at", "answer", "gold_session_ids", "gold_message_ids",
        "answerable",
    }  # fmt: skip


def test_files_are_split_by_bytes(tmp_path, monkeypatch):
    whole = write(str(tmp_path / "one"), 300, 1, 1)
    monkeypatch.setattr("transforms.synth._FILE_BYTES", 20_000)
    parts = write(str(tmp_path / "many"), 300, 1, 1)
    assert len(parts["files"]) > len(whole["files"]) == 2
    joined = b"".join(p.read_bytes() for p in sorted((tmp_path / "many").glob("sessions-*")))
    assert joined == (tmp_path / "one" / "sessions-00000.jsonl").read_bytes()
    assert all(p.stat().st_size <= 20_000 for p in (tmp_path / "many").glob("sessions-*"))
    with pytest.raises(UsageError, match="already holds"):
        write(str(tmp_path / "many"), 50)
    write(str(tmp_path / "many"), 50, overwrite=True)
    assert {p.name for p in (tmp_path / "many").iterdir()} == {"sessions-00000.jsonl", "questions.jsonl", ".truth"}
    assert "s0000030" not in (tmp_path / "many" / ".truth" / "entities.jsonl").read_text()


def told(folder, name):
    return [json.loads(line) for line in (folder / ".truth" / f"{name}.jsonl").read_text().splitlines()]


def test_the_truth_names_all_that_the_logs_name_and_nothing_else(tmp_path):
    write(str(tmp_path), 4_500, 6, 2)
    texts = {}
    for line in (tmp_path / "sessions-00000.jsonl").read_text().splitlines():
        one = json.loads(line)
        for n, message in enumerate(one["messages"][::2]):
            texts[one["case_id"], f"{one['session_id']}/{n}"] = message["content"]
    named = defaultdict(list)
    for row in told(tmp_path, "entities"):
        assert list(row) == ["case_id", "interaction_id", "title", "kind", "attributes", "role"]
        named[row["case_id"], row["interaction_id"]].append((row["title"], row["kind"]))
    assert set(named) <= set(texts)
    banks = {
        "person": words.FIRST_NAMES,
        "place": words.VENUE_KINDS,
        "thing": words.TITLE_SECOND,
    }
    for key, text in texts.items():
        found = {kind: {w for w in re.findall(r"\w+", text) if w in bank} for kind, bank in banks.items()}
        for kind, mentioned in found.items():
            titles = [title for title, one in named[key] if one == kind]
            # People are also called by their first name; the truth has them in full.
            part = {"person": 0, "place": -1, "thing": -1}[kind]
            assert sorted(title.split()[part] for title in titles) == sorted(mentioned), (key, text)
            assert all(kind == "person" or title in text for title in titles)
    full = defaultdict(set)
    for (case, _), titles in named.items():
        for title, kind in titles:
            if kind == "person":
                full[case, title.split()[0]].add(title)
    assert all(" " in title for titles in full.values() for title in titles)


def test_the_true_relations_are_the_chains_of_the_questions(tmp_path):
    write(str(tmp_path), 1_200, 4, 2)
    met, book = defaultdict(dict), {}
    for row in told(tmp_path, "relations"):
        assert list(row) == ["case_id", "interaction_id", "source", "target", "kind", "attributes"]
        if row["kind"] == "introduced":
            (venue,) = row["attributes"]
            met[row["case_id"]][row["source"], venue.removeprefix("venue: ")] = row["target"]
        else:
            assert (row["kind"], row["attributes"]) == ("recommended", [])
            book[row["case_id"], row["source"]] = row["target"]
    chains = 0
    for line in (tmp_path / "questions.jsonl").read_text().splitlines():
        asked = json.loads(line)
        # Venues are named "ADJECTIVE NOUN KIND"; the chain goes on from who was met there.
        way = re.match(r"(.+) took me to the (.+)\. Through the person", asked["question"])
        if way:
            case = asked["case_id"]
            second = met[case][way[1], way[2]]
            third = next(target for (source, _), target in met[case].items() if source == second)
            assert book[case, third] == asked["answer"]
            chains += 1
    assert chains > 5


def test_any_fsspec_target():
    import fsspec

    made = write("memory://synth-test", 20, 1, 1)
    fs = fsspec.filesystem("memory")
    assert fs.exists("/synth-test/questions.jsonl")
    assert [fs.exists(path) for path in made["truth"]] == [True, True]
    assert made["cases"] == 1


@pytest.mark.parametrize("arguments", [(0,), (10_000_001,), (10, 1, 11), (10, 1, 0), (10, -1)])
def test_bad_numbers_are_refused_at_once(arguments):
    with pytest.raises(UsageError):
        records(*arguments)


def test_word_banks_share_no_word():
    banks = {
        "names": (*words.FIRST_NAMES, *words.LAST_NAMES),
        "venues": (*words.VENUE_FIRST, *words.VENUE_SECOND, *words.VENUE_KINDS),
        "titles": (*words.TITLE_FIRST, *words.TITLE_SECOND),
        "talk": (
            *words.USER_FRAMES, *words.ASSISTANT_FRAMES, *words.MENTION_FRAMES,
            *(text for _, text in (*words.INTRODUCED, *words.RECOMMENDED)),
            *(w for bank in (*words.TOPICS, words.COMMON) for part in bank.values() for w in part),
        ),
    }  # fmt: skip
    for name, bank in banks.items():
        if name != "talk":
            assert len(set(bank)) == len(bank)
    found = {
        name: set().union(*(tokens(re.sub(r"\{\w\}", " ", text)) for text in bank)) for name, bank in banks.items()
    }
    for one, other in combinations(found, 2):
        assert not found[one] & found[other], (one, other)


def test_evidence_beyond_the_first_hop_shares_no_content_word_with_its_question():
    hops = defaultdict(list)
    for seed in range(4):
        sessions, questions = split(records(1_500, seed, 3))
        units = interactions(sessions)
        for question in questions:
            if question.question_type.startswith("multi-hop"):
                asked = tokens(question.question) - FUNCTION_WORDS
                shared = [asked & tokens(units[question.case_id, m]) for m in question.gold_message_ids]
                far = shared[1:] if question.question_type.endswith("recommendation") else shared[:-1]
                assert len(shared) >= 2
                assert not any(far), (question.question, far)
                hops[question.question_type].append(len(shared))
    assert {max(found) for found in hops.values()} == {3}
    assert {min(found) for found in hops.values()} == {2}


def test_chains_can_be_followed_by_names():
    """Each gold interaction of a chain shares a full name with the next one; the answer lies at the far end."""
    sessions, questions = split(records(1_000, 2, 2))
    units = interactions(sessions)
    names = set(words.FIRST_NAMES) | set(words.LAST_NAMES)
    named = {key: {w for w in re.findall(r"\w+", text) if w in names} for key, text in units.items()}
    for question in questions:
        gold = [(question.case_id, m) for m in question.gold_message_ids]
        if question.question_type.startswith("multi-hop"):
            assert all(len(named[a] & named[b]) >= 2 for a, b in pairwise(gold))
            far = gold[-1] if question.question_type.endswith("recommendation") else gold[0]
            assert question.answer in units[far]
        elif question.question_type == "single-hop":
            assert question.answer in units[gold[0]]


def test_names_are_never_used_twice_in_a_case_of_many_chapters():
    _, questions = split(records(12_000, 3, 1))
    texts = [q.question for q in questions]
    assert len(set(texts)) == len(texts)
    answers = [q.answer for q in questions if q.question_type == "multi-hop-introduction"]
    assert len(set(answers)) == len(answers) == 6 * 8


def test_small_talk_is_varied():
    sessions, _ = split(records(4_000, 1, 2))
    said = [m.content for s in sessions for m in s.messages]
    assert len(set(said)) > 0.97 * len(said)
    assert len(set().union(*(tokens(text) for text in said))) > 3_000


def test_memory_is_flat():
    def peak(size):
        gc.collect()
        tracemalloc.start()
        for _ in records(size, 1, 1):
            pass
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(100)
    assert peak(8_000) < 1.3 * peak(4_000)
