"""Small schemas of what `infra/` declares: the fields that are used and no others, so that slips are found."""

from __future__ import annotations

from typing import Any

NAME = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
CPU = {"type": ["string", "number"], "pattern": r"^\d+m?$"}
MEMORY = {"type": "string", "pattern": r"^\d+(Mi|Gi)$"}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 0}


def record(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of an object with these fields and no others."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def array(of: dict[str, Any], least: int = 1) -> dict[str, Any]:
    return {"type": "array", "items": of, "minItems": least}


AMOUNTS = {
    "type": "object",
    "properties": {"cpu": CPU, "memory": MEMORY, "nvidia.com/gpu": {"const": "1"}},
    "required": ["memory"],
    "additionalProperties": False,
}
RESOURCES = record({"requests": {**AMOUNTS, "required": ["cpu", "memory"]}, "limits": AMOUNTS})
SECURITY = record(
    {
        "allowPrivilegeEscalation": {"const": False},
        "capabilities": record({"drop": {"const": ["ALL"]}}),
        "runAsNonRoot": {"const": True},
        "runAsUser": {"const": 1000},
        "seccompProfile": record({"type": {"const": "RuntimeDefault"}}),
    }
)
CONTAINER = record(
    {"name": NAME, "image": {"type": "string"}, "resources": RESOURCES, "securityContext": SECURITY},
    {
        "command": array({"type": "string"}),
        "args": array({"type": "string"}),
        "ports": array(record({"containerPort": COUNT, "name": {**NAME, "maxLength": 15}})),
        "envFrom": array(record({"secretRef": record({"name": NAME}, {"optional": {"type": "boolean"}})})),
        "volumeMounts": array(
            record({"name": NAME, "mountPath": {"type": "string", "pattern": "^/"}}, {"readOnly": {"type": "boolean"}})
        ),
        "readinessProbe": record({"tcpSocket": record({"port": NAME})}),
    },
)
VOLUME = {
    "oneOf": [
        record({"name": NAME, "emptyDir": record({"sizeLimit": MEMORY})}),
        record({"name": NAME, "configMap": record({"name": NAME})}),
    ]
}
POD = record(
    {"containers": array(CONTAINER)},
    {
        "serviceAccountName": NAME,
        "tolerations": array(
            record({"key": {"type": "string"}, "operator": {"const": "Exists"}, "effect": {"const": "NoSchedule"}})
        ),
        "terminationGracePeriodSeconds": COUNT,
        "volumes": array(VOLUME),
    },
)
TEMPLATE = record({"metadata": record({"labels": TEXTS}), "spec": POD})
METADATA = record({"name": NAME, "namespace": NAME}, {"labels": TEXTS, "annotations": TEXTS})

RAY_CLUSTER = record(
    {
        "rayVersion": {"type": "string"},
        "authOptions": record({"mode": {"const": "token"}, "secretName": NAME}),
        "enableInTreeAutoscaling": {"const": True},
        "autoscalerOptions": record(
            {
                "version": {"enum": ["v1", "v2"]},
                "idleTimeoutSeconds": COUNT,
                "resources": RESOURCES,
                "securityContext": SECURITY,
            }
        ),
        "headGroupSpec": record({"rayStartParams": TEXTS, "template": TEMPLATE}),
        "workerGroupSpecs": array(
            record(
                {
                    "groupName": NAME,
                    "minReplicas": COUNT,
                    "replicas": COUNT,
                    "maxReplicas": COUNT,
                    "rayStartParams": TEXTS,
                    "template": TEMPLATE,
                }
            )
        ),
    }
)
RAY_JOB = record(
    {
        "entrypoint": {"type": "string"},
        "runtimeEnvYAML": {"type": "string"},
        "jobId": {"type": "string"},
        "metadata": TEXTS,
        "backoffLimit": COUNT,
        "shutdownAfterJobFinishes": {"type": "boolean"},
        "ttlSecondsAfterFinished": COUNT,
        "rayClusterSpec": RAY_CLUSTER,
    }
)
_FLINK_AMOUNTS = record({"resource": record({"cpu": {"type": "number"}, "memory": {"type": "string"}})})
FLINK = record(
    {
        "image": {"type": "string"},
        "flinkVersion": {"enum": ["v1_19", "v1_20", "v2_0", "v2_1"]},
        "serviceAccount": NAME,
        "flinkConfiguration": TEXTS,
        "jobManager": _FLINK_AMOUNTS,
        "taskManager": record(
            _FLINK_AMOUNTS["properties"],
            {
                "podTemplate": record(
                    {
                        "spec": record(
                            {
                                "containers": array(
                                    {"oneOf": [record({"name": {"const": "flink-main-container"}}), CONTAINER]}
                                )
                            }
                        )
                    }
                )
            },
        ),
    }
)


_SERVED = record({"name": NAME, "port": COUNT, "targetPort": NAME})


def _kind(version: str, name: str, rest: dict[str, Any]) -> dict[str, Any]:
    return record({"apiVersion": {"const": version}, "kind": {"const": name}, "metadata": METADATA, **rest})


KINDS = {
    "ServiceAccount": _kind("v1", "ServiceAccount", {}),
    "ConfigMap": _kind("v1", "ConfigMap", {"data": TEXTS}),
    "RayCluster": _kind("ray.io/v1", "RayCluster", {"spec": RAY_CLUSTER}),
    "RayJob": _kind("ray.io/v1", "RayJob", {"spec": RAY_JOB}),
    "FlinkDeployment": _kind("flink.apache.org/v1beta1", "FlinkDeployment", {"spec": FLINK}),
    "Deployment": _kind(
        "apps/v1",
        "Deployment",
        {"spec": record({"replicas": COUNT, "selector": record({"matchLabels": TEXTS}), "template": TEMPLATE})},
    ),
    "Service": _kind(
        "v1",
        "Service",
        {
            "spec": record(
                {"selector": TEXTS, "ports": array(record({"name": NAME, "port": COUNT, "targetPort": NAME}))}
            )
        },
    ),
}
"""Kind of a Kubernetes object -> its schema."""

_HEALTH = record(
    {
        "test": {"type": "array", "prefixItems": [{"const": "CMD"}], "minItems": 2, "items": {"type": "string"}},
        "interval": {"type": "string"},
        "timeout": {"type": "string"},
        "retries": COUNT,
    }
)
_LOCAL_PORT = {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}
_SERVICE = record(
    {"image": {"type": "string"}},
    {
        "build": record({"context": {"type": "string"}, "dockerfile": {"type": "string"}}),
        "environment": TEXTS,
        "security_opt": {"const": ["no-new-privileges:true"]},
        "restart": {"enum": ["unless-stopped", "no"]},
        "entrypoint": array({"type": "string"}),
        "command": array({"type": "string"}),
        "hostname": NAME,
        "ports": array(_LOCAL_PORT),
        "shm_size": {"type": "string"},
        "stop_grace_period": {"type": "string"},
        "volumes": array({"type": "string"}),
        "profiles": array(NAME),
        "depends_on": {
            "type": "object",
            "additionalProperties": record({"condition": {"enum": ["service_healthy", "service_started"]}}),
        },
        "healthcheck": _HEALTH,
    },
)
COMPOSE = {
    "type": "object",
    "properties": {
        "name": NAME,
        "services": {"type": "object", "additionalProperties": _SERVICE},
        "volumes": {"type": "object", "additionalProperties": {"type": "null"}},
    },
    "required": ["name", "services"],
    "patternProperties": {"^x-": {}},
    "additionalProperties": False,
}
"""A compose file."""
