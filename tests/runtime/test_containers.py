"""enroot: a stand-in with a real root file system and the faults of enroot."""

import os
import signal
from functools import partial

import pytest
from test_environments import ALL_REDUCE, facts_of, refused

from running import wait_for
from standins.images import image_tree, need, squashed, standins

pytestmark = need("/usr/bin/bwrap", "/usr/bin/mksquashfs")

SETTING = {"GREETING": "from the image"}


@pytest.fixture
def tree(tmp_path):
    return image_tree(tmp_path / "tree", **SETTING)


@pytest.fixture
def image(tree, tmp_path):
    return squashed(tree, tmp_path / "py torch.sqsh".replace(" ", "-"))


@pytest.fixture
def enroot(echelon):
    """The variables that select the stand-in, and its recorded calls."""
    notes = echelon.folder / "notes"
    notes.touch()
    echelon.env |= {
        **standins(echelon.folder),
        "STANDIN_NOTES": str(notes),
        "ENROOT_DATA_PATH": str(echelon.folder / "data"),
    }
    return lambda verb: [line.split()[1] for line in notes.read_text().splitlines() if line.startswith(f"{verb} ")]


@pytest.fixture
def facts(echelon):
    return partial(facts_of, echelon)


@pytest.mark.torch
def test_training_in_enroot_makes_one_container_for_all(echelon, enroot, image):
    script = echelon.script("train.py", ALL_REDUCE)
    result = echelon("run", "-N", "2", "-g", "2", "--image", image, script)
    assert result.returncode == 0, result.stderr + result.stdout
    assert sorted(result.stdout.splitlines()) == [f"[{rank}] sum 6.0 of 4 in True" for rank in range(4)]
    (name,) = enroot("create")
    assert name.startswith("echelon-py-torch-")
    assert enroot("start") == [name, name]


def test_enroot_gets_all_variables_except_those_of_the_host(facts, enroot, image, echelon):
    env = {
        "FROM_HERE": 'it\'s "here" $HOME',
        "LINES": "'one'\ntwo",
        "QUOTED": '"x" and "y"',
        "BASH_FUNC_module%%": "() { :; }",
    }
    told = facts("--image", image, "--set", "GREETING=asked\nfor", env=env)
    assert told["FROM_HERE"] == env["FROM_HERE"]
    assert told["GREETING"] == "asked\nfor"
    assert (told["image"], told["root"], told["cwd"]) == (True, "read-only", str(echelon.folder))
    assert (told["LINES"], told["QUOTED"]) == (env["LINES"], env["QUOTED"]), "what enroot alone would have changed"


def test_enroot_does_not_get_host_variables(facts, enroot, image):
    told = facts("--image", image, env={"CONDA_PREFIX": "/opt/conda"})
    assert (told["image"], told["CONDA_PREFIX"]) == (True, None)


def test_a_site_may_have_enroots_roots_writable(facts, enroot, image):
    assert facts("--image", image, env={"ENROOT_ROOTFS_WRITABLE": "y"})["root"] == "writable"


def test_values_of_variables_are_never_arguments(echelon, enroot, image):
    text = echelon("render", "--image", image, "--set", "API_KEY=hush", echelon.script("x.py", "")).stdout
    assert "-e" in text
    assert "hush" not in text


def test_enroot_mounts_and_writes_only_the_given_folders(facts, enroot, image, echelon):
    (echelon.folder / "data set").mkdir()
    (echelon.folder / "samples").mkdir()
    (echelon.folder / "samples" / "one").touch()
    flags = ("--image", image, "--mount", "samples:/mnt/samples:ro", "--container-writable", "--container-root")
    told = facts(*flags, args=["/mnt/samples"])
    assert told["seen"] == ["one"]
    assert (told["root"], told["uid"]) == ("writable", 0)


def test_a_container_is_used_again_until_its_image_changes(facts, enroot, image, tree):
    facts("--image", image)
    facts("--image", image)
    assert len(enroot("create")) == 1
    (tree / "etc" / "more").write_text("another layer")
    squashed(tree, image)
    facts("--image", image)
    first, second = enroot("create")
    assert first != second


def test_two_simultaneous_runs_share_one_container(echelon, enroot, image):
    script = echelon.script("x.py", "print('done')")
    runs = [
        echelon.submit("-N", "2", "--cold", "--image", image, script, env={"STANDIN_SLOWLY": "1"}) for _ in range(2)
    ]
    for run in runs:
        assert run.wait()["outcome"] == "succeeded"
    assert len(enroot("create")) == 1
    assert len(enroot("start")) == 4


def test_incomplete_container_is_created_again(echelon, enroot, image, facts):
    run = echelon.submit("--cold", "--image", image, echelon.script("x.py", ""), env={"STANDIN_SLOWLY": "60"})
    wait_for(lambda: enroot("create"), "the container to be begun")
    (name,) = enroot("create")
    wait_for((echelon.folder / "data" / name).is_dir, "its folder")
    os.kill(run.supervisor(), signal.SIGTERM)
    assert run.wait()["outcome"] == "cancelled"
    told = facts("--image", image)
    assert told["image"]
    assert enroot("remove") == [name]
    assert enroot("create") == [name, name]


def test_container_of_the_user_stays_unchanged(echelon, enroot, image, facts, tree, tmp_path):
    facts("--image", image, "--container-name", "mine")
    assert enroot("create") == ["mine"]
    told = facts("--env", "enroot", "--container-name", "mine")
    assert told["image"]
    (tree / "etc" / "more").write_text("another layer")
    other = squashed(tree, tmp_path / "other.sqsh")
    said = refused(echelon, "--image", other, "--container-name", "mine")
    assert "the container mine was created from another image than" in said
    assert "enroot remove mine" in said
    assert "this node has no container yours" in refused(echelon, "--env", "enroot", "--container-name", "yours")


def kept_in(folder):
    """Names of containers, and of what we know of them."""
    names = [path.name for path in folder.iterdir()]
    return [name for name in names if name[0] != "."], [name for name in names if name[0] == "."]


def configured(folder, **files):
    """Variables of a node whose enroot was built to read these."""
    for name, text in files.items():
        file = folder / ("enroot.conf" if name == "main" else f"enroot.conf.d/{name}.conf")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return {"ENROOT_DATA_PATH": "", "STANDIN_SYSCONF": str(folder), "USER": "ada"}


@pytest.mark.parametrize("name", ["main", "10-site"])
def test_containers_are_in_the_folder_of_enroots_configuration(echelon, enroot, image, facts, name):
    """The first line counts. Files beside the configuration are read too."""
    site, conf = echelon.folder / "site-ada", echelon.folder / "conf"
    later = f"ENROOT_DATA_PATH={echelon.folder}/later\n"
    text = f"# a site's\nENROOT_DATA_PATH {echelon.folder}/site-$USER\n{later}"
    env = configured(conf, **{name: text, "20-later": later})
    facts("--image", image, env={**env, "ENROOT_SYSCONF_PATH": str(conf)})
    (made,) = enroot("create")
    assert kept_in(site) == ([made], [f".{made}.echelon"])


def test_enroots_default_is_known(echelon, enroot, image, facts):
    facts("--image", image, env={"ENROOT_DATA_PATH": "", "XDG_DATA_HOME": str(echelon.folder / "xdg")})
    (made,) = enroot("create")
    assert kept_in(echelon.folder / "xdg" / "enroot") == ([made], [f".{made}.echelon"])


def test_container_is_found_in_any_data_path_of_enroot(echelon, enroot, image, facts):
    """Its configuration is in a folder that only enroot itself can find."""
    env = configured(echelon.folder / "conf", main=f"ENROOT_DATA_PATH {echelon.folder}/site\n")
    env["XDG_DATA_HOME"] = str(echelon.folder / "xdg")
    for _ in range(2):
        assert facts("--image", image, "--container-name", "mine", env=env)["image"]
    assert facts("--env", "enroot", "--container-name", "mine", env=env)["image"]
    assert enroot("create") == ["mine"]
    assert kept_in(echelon.folder / "site") == (["mine"], [])
    said = refused(echelon, "--env", "enroot", "--container-name", "yours", env=env)
    assert "this node has no container yours" in said


@pytest.mark.parametrize("rc", [None, 'echo "a banner"; exec "$@"'], ids=["without", "with"])
def test_images_with_and_without_a_command_script(facts, enroot, echelon, tmp_path, rc):
    image = squashed(image_tree(tmp_path / "other", rc=rc), tmp_path / "other.sqsh")
    assert facts("--image", image)["image"]


def test_image_without_python_is_reported(echelon, enroot, tmp_path):
    image = squashed(image_tree(tmp_path / "empty", python=None), tmp_path / "empty.sqsh")
    said = refused(echelon, "--image", image)
    assert f"cannot run python3 in the image {image}" in said
    assert "Python 3.10 and torch are needed in the image" in said


def test_missing_paths_are_reported_before_the_start(echelon, enroot, image):
    said = refused(echelon, "--image", "nope.sqsh")
    assert f"no image at {echelon.folder}/nope.sqsh" in said
    assert "from  --image nope.sqsh" in said
    assert "enroot import" in said
    said = refused(echelon, "--image", image, "--mount", "/nope:/data")
    assert "no folder to mount at /nope" in said
    (echelon.folder / "text.sqsh").write_text("no image")
    assert "is not an enroot image" in refused(echelon, "--image", "text.sqsh")
    assert not (echelon.folder / "runs").exists()


def test_node_without_enroot_is_reported(echelon, image):
    assert "this node has no enroot" in refused(echelon, "--image", image)
