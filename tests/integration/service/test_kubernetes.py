"""The manifests for Kubernetes: valid, and what they name exists here and in one another."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from starlette.routing import Route
from tests.meta.test_documented import wrong_in

from recollect.hosts.service.app import Service
from recollect.hosts.service.metrics import Metrics
from recollect.system.config import load_settings
from recollect.system.config.load import NOT_SETTINGS

DEPLOY = Path(__file__).parents[3] / "deploy"
PARTS = ("", "migrate-before", "migrate-after")
VERSIONS = ("1.31", "1.34")
KUSTOMIZE = 5
"""The oldest kustomize that knows the fields used here."""


def rendering() -> bool:
    """Whether there is a kubectl that can render."""
    if shutil.which("kubectl") is None:
        return False
    command = ["kubectl", "version", "--client", "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout).get("kustomizeVersion", "v0") if done.returncode == 0 else "v0"
    return int(found.lstrip("v").split(".")[0]) >= KUSTOMIZE


def as_written(part: str) -> Iterator[Any]:
    """The objects in the files that a kustomization lists, and its config maps."""
    folder = DEPLOY / "kubernetes" / part
    top = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for name in top["resources"]:
        yield from yaml.safe_load_all((folder / name).read_text())
    for one in top.get("configMapGenerator", ()):
        data = dict(line.split("=", 1) for line in one["literals"])
        name = {"name": one["name"]}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data}


OBJECTS = [one for part in PARTS for one in as_written(part)]


def of_kind(*kinds: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in OBJECTS if one["kind"] in kinds}


PODS = {name: one["spec"]["template"] for name, one in of_kind("Deployment", "Job").items()}
MAPS = {name: one["data"] for name, one in of_kind("ConfigMap").items()}


def container(pod: Any) -> Any:
    (only,) = pod["spec"]["containers"]
    return only


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(version: str) -> None:
    assert len(OBJECTS) > 15
    for one in OBJECTS:
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.skipif(not rendering(), reason="no kubectl with kustomize 5 here")
@pytest.mark.parametrize("part", PARTS)
def test_kubectl_renders_what_the_files_say(part: str) -> None:
    command = ["kubectl", "kustomize", str(DEPLOY / "kubernetes" / part)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    objects = list(yaml.safe_load_all(done.stdout))
    assert sorted(one["kind"] for one in objects) == sorted(one["kind"] for one in as_written(part))
    for one in objects:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
        assert one["metadata"]["namespace"] == "recollect"
    maps = {one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"}
    asked = {
        source["configMapRef"]["name"]
        for one in objects
        if one["kind"] == "Deployment"
        for source in container(one["spec"]["template"])["envFrom"]
    }
    assert asked == maps, "a changed setting has another name, so pods are replaced"


def test_commands_settings_and_probes_are_ours() -> None:
    routes = Service(load_settings(folder=None).settings, "")._routes()
    served = {route.path for route in routes if isinstance(route, Route)}
    for name, pod in PODS.items():
        one = container(pod)
        if one["image"] == "recollect":
            words = ["recollect", *one["args"]]
            assert not wrong_in(" ".join(words).replace("$(OWNER_URL)", "postgresql://o@h/d"))
        ports = {port["name"]: port["containerPort"] for port in one.get("ports", ())}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            check = one.get(probe, {}).get("httpGet")
            assert check is None or check["path"] in served | {"/metrics"}, (name, probe)
            assert check is None or check["port"] in ports
        limits = pod["spec"]["securityContext"], one["securityContext"]
        assert limits[0]["runAsNonRoot"]
        assert limits[1]["readOnlyRootFilesystem"]
        assert not limits[1]["allowPrivilegeEscalation"]
    given = {name: text for name, text in MAPS["recollect"].items() if not name.endswith("_FILE")}
    assert not set(given) & NOT_SETTINGS
    load_settings(environment=given, folder=None)  # refuses what is no setting
    script = (DEPLOY / "pgbouncer.sh").read_text()
    assert all(f"${name}" in script or f"${{{name}" in script for name in MAPS["pgbouncer"])


def test_a_secret_is_a_file_that_its_pod_mounts() -> None:
    for name, pod in PODS.items():
        one = container(pod)
        mounted = {mount["mountPath"] for mount in one["volumeMounts"]}
        assert {mount["name"] for mount in one["volumeMounts"]} == {
            volume["name"] for volume in pod["spec"]["volumes"]
        }
        texts = [env["value"] for env in one.get("env", ())] + one.get("args", [])
        for source in one.get("envFrom", ()):
            texts += MAPS[source["configMapRef"]["name"]].values()
        files = [text for text in texts if text.startswith("/run/secrets/")]
        assert files, name
        for path in files:
            assert path.rsplit("/", 1)[0] in mounted, (name, path)


def test_what_selects_pods_finds_some() -> None:
    labels = {pod["metadata"]["labels"]["app"] for pod in PODS.values()}
    budgets = of_kind("PodDisruptionBudget")
    deployments = of_kind("Deployment")
    assert set(budgets) == set(deployments)
    for one in [*budgets.values(), *deployments.values()]:
        assert one["spec"]["selector"]["matchLabels"]["app"] in labels
    for one in of_kind("Service").values():
        pod = PODS[one["spec"]["selector"]["app"]]
        assert one["spec"]["ports"][0]["targetPort"] in {
            port["name"] for port in container(pod)["ports"]
        }
    for one in of_kind("NetworkPolicy").values():
        selector = one["spec"]["podSelector"]
        named = [*selector.get("matchLabels", {}).values()]
        for expression in selector.get("matchExpressions", ()):
            named += expression["values"]
        assert set(named) <= labels
    url = MAPS["recollect"]["RECOLLECT_STORE__URL"]
    assert f"@{'pgbouncer'}:{of_kind('Service')['pgbouncer']['spec']['ports'][0]['port']}/" in url


def test_pods_are_scaled_by_metrics_that_exist() -> None:
    ours = {family.name for family in Metrics().registry.collect()}
    for name, one in of_kind("HorizontalPodAutoscaler").items():
        assert one["spec"]["scaleTargetRef"]["name"] in of_kind("Deployment"), name
        names = [
            each["pods"]["metric"]["name"] for each in one["spec"]["metrics"] if "pods" in each
        ]
        assert names
        assert set(names) <= ours
