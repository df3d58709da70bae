"""Shell blocks of documents, and the files that are read at all."""

import os

import pytest

from echelon.lint.documents import shell_blocks
from echelon.lint.model import Skipped
from echelon.lint.sources import MAX_BYTES, find_files, read_sources, sources_of


def blocks(text, *, rst=False):
    return [(block.first_line, block.text) for block in shell_blocks(text.split("\n"), is_rst=rst)]


@pytest.mark.parametrize(
    "fence",
    [
        "```bash",
        "```",
        "```sh",
        "~~~bash",
        '```bash title="job.sh"',
        "``` {.bash .copy}",
        "```{code-block} bash",
        "```console",
    ],
)
def test_fences_of_shell_blocks(fence):
    assert blocks(f"text\n{fence}\nsrun x\n{fence[:3]}\n") == [(3, "srun x")]


@pytest.mark.parametrize("language", ["python", "yaml", "json", "c++"])
def test_other_languages_are_left_out(language):
    assert blocks(f"```{language}\nsrun x\n```\n") == []


def test_only_blocks_about_jobs_are_taken():
    assert blocks("```bash\nls\n```\n\n```bash\necho $SLURM_JOB_ID\n```\n") == [(6, "echo $SLURM_JOB_ID")]


def test_terminal_session_keeps_what_is_typed():
    text = "```console\n$ sbatch \\\n    job.sh\nSubmitted batch job 7\nuser@host:~$ squeue\n```\n"
    assert blocks(text) == [(2, "sbatch \\\n    job.sh\n\nsqueue")]


def test_unclosed_block_ends_with_the_document():
    assert blocks("```bash\nsrun x") == [(2, "srun x")]


def test_longer_fence_contains_a_shorter_one():
    assert blocks("````bash\nsrun x\n```\nsrun y\n````\n") == [(2, "srun x\n```\nsrun y")]


def test_blocks_of_restructured_text():
    text = "Title\n\n.. code-block:: bash\n   :linenos:\n\n   srun x\n\n     srun y\n\nText::\n\n    srun z\n\nend\n"
    assert blocks(text, rst=True) == [(6, "srun x\n\n  srun y"), (12, "srun z")]


def test_script_without_a_launch_is_continued():
    text = "```sh\n#!/bin/sh\n#SBATCH -N 2\n```\n\n```sh\nexport A=1\n```\n\n```sh\nsrun x\n```\n\n```sh\nsrun y\n```\n"
    assert [line for line, _ in blocks(text)] == [2, 15]
    assert blocks(text)[0][1].split("\n")[9] == "srun x"


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("a.md", "```\nsrun a\n```\n```\nsrun b\n```\n", 2),
        ("a.txt", "```\nsrun a\n```\n", 1),
        ("a.txt", ".. code-block:: sh\n\n   srun a\n", 1),
        ("a.txt", "#!/bin/sh\n# ```\nsrun a\n", 1),
        ("a.rst", "no blocks", 0),
        ("job", "", 1),
    ],
)
def test_kind_of_file(name, text, count):
    assert len(sources_of(name, text)) == count


def test_folders_are_walked_for_job_scripts(tmp_path):
    for name in ("a.sbatch", "b.py", "sub/c.md", ".git/d.sh", "node_modules/e.sh", "f.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("srun x\n" if name != "f.sh" else "ls\n")
    found = [os.path.relpath(path, tmp_path) for path, _ in find_files([str(tmp_path)])]
    assert found == ["a.sbatch", "f.sh", "sub/c.md"]
    assert read_sources(str(tmp_path / "f.sh"), from_folder=True) == []
    assert len(read_sources(str(tmp_path / "f.sh"), from_folder=False)) == 1


def test_files_that_are_not_scripts_are_skipped(tmp_path):
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "huge").write_bytes(b"#" * (MAX_BYTES + 1))
    os.mkfifo(tmp_path / "pipe")
    reasons = {name: read_sources(str(tmp_path / name), from_folder=False) for name in ("binary", "huge", "pipe", "no")}
    assert {name: one.reason for name, one in reasons.items() if isinstance(one, Skipped)} == {
        "binary": "a binary file",
        "huge": "larger than 1 MiB",
        "pipe": "not a regular file",
        "no": "No such file or directory",
    }


def test_text_that_is_not_utf8_is_read(tmp_path):
    (tmp_path / "latin").write_bytes(b"#!/bin/sh\n# \xe9\r\nsrun x\n")
    [source] = read_sources(str(tmp_path / "latin"), from_folder=False)
    assert source.text.endswith("\nsrun x\n")
