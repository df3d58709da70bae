"""enroot and apptainer, by stand-ins that have a real root of their own and the faults of the real ones."""

import json
import os
import signal
import sys

import pytest
from test_environments import ALL_REDUCE, FACTS, refused

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
    """The variables that lead to it, and what was asked of it."""
    notes = echelon.folder / "notes"
    notes.touch()
    echelon.env |= {**standins(), "STANDIN_NOTES": str(notes), "ENROOT_DATA_PATH": str(echelon.folder / "data")}
    return lambda verb: [line.split()[1] for line in notes.read_text().splitlines() if line.startswith(f"{verb} ")]


@pytest.fixture
def facts(echelon):
    script = echelon.script("facts.py", FACTS)

    def run(*flags, args=(), env=None, nodes=1):
        result = echelon("run", "-N", str(nodes), "--cold", *flags, script, *args, env=env)
        assert result.returncode == 0, result.stderr + result.stdout
        return json.loads(result.stdout.splitlines()[0].partition("] ")[2])

    return run


@pytest.mark.torch
def test_training_in_enroot_makes_one_container_for_all(echelon, enroot, image):
    script = echelon.script("train.py", ALL_REDUCE)
    result = echelon("run", "-N", "2", "-g", "2", "--image", image, script)
    assert result.returncode == 0, result.stderr + result.stdout
    assert sorted(result.stdout.splitlines()) == [f"[{rank}] sum 6.0 of 4 in True" for rank in range(4)]
    (name,) = enroot("create")
    assert name.startswith("echelon-py-torch-")
    assert enroot("start") == [name, name]


def test_enroot_gets_every_variable_but_those_of_the_host(facts, enroot, image, echelon):
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


@pytest.mark.parametrize(("ending", "prefix"), [("sqsh", None), ("sif", "/opt/conda")])
def test_which_variables_of_the_host_come_in_is_the_runtimes_way(facts, enroot, tree, tmp_path, ending, prefix):
    """enroot gets none of them; apptainer brings everything."""
    told = facts("--image", squashed(tree, tmp_path / f"torch.{ending}"), env={"CONDA_PREFIX": "/opt/conda"})
    assert (told["image"], told["CONDA_PREFIX"]) == (True, prefix)


def test_a_site_may_have_enroots_roots_writable(facts, enroot, image):
    assert facts("--image", image, env={"ENROOT_ROOTFS_WRITABLE": "y"})["root"] == "writable"


def test_no_value_of_a_variable_is_ever_in_an_argument(echelon, enroot, image):
    text = echelon("render", "--image", image, "--set", "API_KEY=hush", echelon.script("x.py", "")).stdout
    assert "-e" in text
    assert "hush" not in text


def test_enroot_mounts_and_writes_only_where_it_was_told(facts, enroot, image, echelon):
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


def test_two_runs_at_once_do_not_race(echelon, enroot, image):
    script = echelon.script("x.py", "print('done')")
    runs = [
        echelon.submit("-N", "2", "--cold", "--image", image, script, env={"STANDIN_SLOWLY": "1"}) for _ in range(2)
    ]
    for run in runs:
        assert run.wait()["outcome"] == "succeeded"
    assert len(enroot("create")) == 1
    assert len(enroot("start")) == 4


def test_a_half_made_container_is_made_anew(echelon, enroot, image, facts):
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


def test_a_container_of_the_users_own_is_left_as_it_is(echelon, enroot, image, facts, tree, tmp_path):
    facts("--image", image, "--container-name", "mine")
    assert enroot("create") == ["mine"]
    told = facts("--env", "enroot", "--container-name", "mine")
    assert told["image"]
    (tree / "etc" / "more").write_text("another layer")
    other = squashed(tree, tmp_path / "other.sqsh")
    said = refused(echelon, "--image", other, "--container-name", "mine")
    assert "the container mine was made from another image than" in said
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
def test_enroots_own_configuration_says_where_containers_are(echelon, enroot, image, facts, name):
    """The first line counts, and those of files beside it do, too."""
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


def test_a_container_is_found_again_wherever_enroot_was_built_to_keep_it(echelon, enroot, image, facts):
    """Its configuration lies in a folder that nothing but enroot itself knows of."""
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


def test_an_image_without_python_says_so(echelon, enroot, tmp_path):
    image = squashed(image_tree(tmp_path / "empty", python=None), tmp_path / "empty.sqsh")
    said = refused(echelon, "--image", image)
    assert f"the image {image} has no python3 that could be run" in said
    assert "Python 3.10 and torch are needed in the image" in said


def test_what_is_missing_is_known_before_anything_starts(echelon, enroot, image):
    said = refused(echelon, "--image", "nope.sqsh")
    assert f"no image at {echelon.folder}/nope.sqsh" in said
    assert "from  --image nope.sqsh" in said
    assert "enroot import" in said
    said = refused(echelon, "--image", image, "--mount", "/nope:/data")
    assert "no folder to mount at /nope" in said
    (echelon.folder / "text.sqsh").write_text("no image")
    assert "is no image of enroot's" in refused(echelon, "--image", "text.sqsh")
    assert not (echelon.folder / "runs").exists()


def test_a_node_without_enroot_says_so(echelon, image):
    assert "this node has no enroot" in refused(echelon, "--image", image)


# apptainer


@pytest.fixture
def apptainer(echelon):
    echelon.env |= standins()


@pytest.fixture
def sif(tree, tmp_path):
    return squashed(tree, tmp_path / "torch.sif")


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_training_in_apptainer(echelon, apptainer, sif, tree, kind):
    image = ("--image", sif) if kind == "file" else ("--image", tree, "--env", "apptainer")
    result = echelon("run", "-N", "2", "-g", "2", *image, echelon.script("train.py", ALL_REDUCE))
    assert result.returncode == 0, result.stderr + result.stdout
    assert sorted(result.stdout.splitlines()) == [f"[{rank}] sum 6.0 of 4 in True" for rank in range(4)]


def test_apptainer_binds_and_starts_where_it_was_told(facts, apptainer, sif, echelon):
    (echelon.folder / "samples").mkdir()
    (echelon.folder / "samples" / "facts.py").write_text(FACTS)
    flags = ("--image", sif, "--mount", "samples:/mnt/samples:ro", "--container-workdir", "/mnt/samples")
    told = facts(*flags, args=["/mnt/samples"], env={"FROM_HERE": "here"})
    assert (told["cwd"], told["seen"]) == ("/mnt/samples", ["facts.py"])
    assert (told["root"], told["FROM_HERE"], told["STANDIN_FLAGS"]) == ("read-only", "here", "")


def test_a_folder_is_an_image_of_apptainers_by_its_mere_name(facts, apptainer, echelon):
    image_tree(echelon.folder / "sandbox")
    assert facts("--env", "apptainer", "--image", "sandbox")["image"]
    assert f"no image at {echelon.folder}/sandbag" in refused(echelon, "--env", "apptainer", "--image", "sandbag")


def test_apptainer_is_told_what_may_be_written(facts, apptainer, sif):
    told = facts("--image", sif, "--container-writable", "--container-root")
    assert told["STANDIN_FLAGS"] == "--writable-tmpfs --fakeroot"
    assert told["uid"] == 0


def test_a_bind_that_fails_on_the_node_is_told_in_the_words_of_apptainer(echelon, apptainer, sif):
    """A target that is a file cannot become a folder."""
    said = refused(echelon, "--image", sif, "--mount", "/usr:/etc/image")
    assert "what leads into it ended with exit code" in said
    assert "bwrap: " in said


def test_a_fatal_word_of_apptainer_ends_the_run_at_once(echelon, apptainer):
    """It says 255 of any trouble of its own, which is no signal."""
    said = refused(echelon, "--image", "docker://nowhere/nothing")
    assert "the environment (apptainer) could not be entered" in said
    assert "what leads into it ended with exit code 255" in said
    assert "FATAL:   could not open image docker://nowhere/nothing" in said


def test_a_node_with_neither_name_of_apptainer(echelon, sif):
    assert "this node has neither apptainer nor singularity" in refused(echelon, "--image", sif)
    assert "this node has neither singularity nor apptainer" in refused(echelon, "--image", sif, "--env", "singularity")


def test_the_ranks_python_is_the_images(echelon, apptainer, sif):
    job = json.loads(echelon("render", "--json", "--image", sif, echelon.script("x.py", "")).stdout)["job"]
    assert (job["python"], job["host_python"]) == ("python3", sys.executable)
