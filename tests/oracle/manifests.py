"""What `atoll launch --print` writes for Kubernetes, against the schemas of its objects.

    python tests/oracle/manifests.py build/release/bin/atoll WORK_DIRECTORY

Built-in kinds by the schemas that kubernetes-validate carries; JobSet by the models of
kubeflow-trainer-api, which its own definition is generated into.
"""

from reference.checks import ROOT, Checks, arguments, expect, run

CHECKS = Checks("manifests")
for package in ("kubeflow_trainer_api", "kubernetes_validate", "yaml"):
    CHECKS.require(package)

import kubeflow_trainer_api.models as kubeflow  # noqa: E402: see above
import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

RECIPE = ROOT / "recipes" / "kjv-demo.toml"
WORDS = ["--image=example.org/atoll:1", "--data.vocab_size=300", "--train.batch_size=8"]
RUNS = {
    "one pod": ["--max-ranks=1"],
    "several pods": ["--max-ranks=4", "--slots=2", "--device.threads=2"],
    "islands": ["--max-ranks=2", "--slots=1", "--outer.islands=2"],
    "islands elsewhere": ["--outer.islands=3", "--island.coordinator=a.example.org:7411",
                          "--island.name=x"],
}


def objects_of(program, kind, words, text):
    """What is written, as YAML reads it."""
    out = run(program, "launch", str(RECIPE), *WORDS, f"--data.text={text}", *words,
              f"--print={kind}").decode()
    return list(yaml.safe_load_all(out))


def recipe_is_kept(objects):
    """The recipe in the ConfigMap has the bytes of the file."""
    maps = [one for one in objects if one["kind"] == "ConfigMap"]
    expect(len(maps) == 1, "there is not one ConfigMap")
    expect(maps[0]["data"]["run.toml"] == RECIPE.read_text(), "the recipe is another")


def check_kubernetes(program, words, text):
    """Each object by its own schema."""
    objects = objects_of(program, "kubernetes", words, text)
    recipe_is_kept(objects)
    for one in objects:
        kubernetes_validate.validate(one, "1.37", strict=True)
    return f"{len(objects)} objects"


def check_jobset(program, words, text):
    """The JobSet, and the Jobs that it is made of."""
    objects = objects_of(program, "jobset", words, text)
    recipe_is_kept(objects)
    sets = [one for one in objects if one["kind"] == "JobSet"]
    expect(len(sets) == 1, "there is not one JobSet")
    read = kubeflow.JobsetV1alpha2JobSet.from_dict(sets[0])
    again = read.to_dict()
    jobs = sets[0]["spec"]["replicatedJobs"]
    expect(again["spec"]["replicatedJobs"][0]["name"] == jobs[0]["name"], "a name was lost")
    for job in jobs:
        # Its template is a Job of Kubernetes.
        kubernetes_validate.validate(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]},
             "spec": job["template"]["spec"]}, "1.37", strict=True)
    return f"{len(jobs)} jobs"


def main():
    """See above."""
    program, work = arguments("manifests")
    text = work / "text.txt"
    text.write_text("The sea is deep, and the island is far.\n" * 400)
    for name, words in RUNS.items():
        CHECKS.run(f"kubernetes, {name}", check_kubernetes, program, words, text)
        CHECKS.run(f"jobset, {name}", check_jobset, program, words, text)
    CHECKS.finish()


if __name__ == "__main__":
    main()
