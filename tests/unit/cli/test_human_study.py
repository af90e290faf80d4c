"""`tether human-study`: what it prints and writes, and its mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.human_study.studies import completions, fill
from tether.cli.main import main


@pytest.fixture
def run(capsys, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def go(*words: str) -> tuple[int, str, str]:
        code = main(["human-study", *words])
        out = capsys.readouterr()
        return code, out.out, out.err

    return go


def test_prepare_and_analyse(run, tmp_path: Path) -> None:
    words = completions(tmp_path)
    (tmp_path / "say.txt").write_text("Take your <time>.\n")
    code, out, err = run(
        "prepare", *words, "--out", "s", "--task", "toy", "--axis", "fun=How funny is it?",
        "--points", "7", "--ends", "dull,funny", "--raters", "2", "--per-form", "9",
        "--instructions", "say.txt",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "8 forms of 9 texts and 2 checks: 36 texts of 12 prompts, each for 2 raters" in out
    assert "s/forms" in out and "s/key.json" in out
    key = json.loads(Path("s/key.json").read_text(encoding="utf-8"))
    assert key["axes"] == {"fun": "How funny is it?"} and key["points"] == 7
    assert "Take your \\u003ctime\\u003e." in Path("s/forms/form-01.html").read_text()
    for form in key["forms"]:
        fill(key, form, Path("back"), lambda u, a: str(1 + int(u["id"][1:4], 16) % 7))
    code, out, err = run("analyse", "back", "--key", "s/key.json")
    assert (code, err) == (0, "")
    assert "fun: one-way ANOVA F(2, 69)" in out
    assert "8 forms came back of 8, 0 excluded; 8 raters gave 72 ratings of 36 texts on fun." in out
    assert Path("s/human_study.html").is_file()
    found = run("analyse", "back", "--key", "s/key.json", "--json", "--out", "else")[1]
    assert found == Path("else/human_study.json").read_text(encoding="utf-8")
    assert json.loads(found)["axes"][0]["axis"] == "fun"


def test_a_result_is_written_whole(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there stays until the new file is complete."""
    run("prepare", *completions(tmp_path), "--out", "s", "--per-form", "12")
    key = json.loads(Path("s/key.json").read_text(encoding="utf-8"))
    for form in key["forms"]:
        fill(key, form, Path("back"), lambda u, a: str(1 + int(u["id"][1:4], 16) % 5))
    assert run("analyse", "back", "--key", "s/key.json")[0] == 0
    before = Path("s/human_study.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "s/human_study.json")

    monkeypatch.setattr("tether.config.whole_file.os.replace", full)
    code, _, err = run("analyse", "back", "--key", "s/key.json", "--seed", "1")
    assert code == 2 and "No space left" in err and err.count("\n") == 1
    assert Path("s/human_study.json").read_bytes() == before
    assert not list(Path("s").glob(".*"))


def test_published(run) -> None:
    code, out, _ = run("published")
    assert code == 0
    assert "11 of 17 are borne out by the printed means" in out
    assert "They cannot both be of one Tukey test" in out
    found = json.loads(run("published", "--json")[1])
    assert found["average_over_tasks"]["NLPO"][0] == pytest.approx(3.19)
    assert not found["table_10"]["of_one_tukey_test"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("prepar", "tether: unknown action 'prepar' in tether human-study; did you mean 'prepare'"),
        ("prepare --out s", "tether: tether human-study prepare: the following arguments are"),
        ("prepare x.jsonl", "tether: tether human-study prepare: the following arguments are"),
        ("prepare x.jsonl --out s", "tether: there is no file 'x.jsonl' of completions"),
        ("prepare x --out s --kind scale", "tether: tether human-study prepare: argument --kind"),
        ("prepare x --out s --axis fun", "tether: --axis 'fun' is not NAME=QUESTION"),
        ("prepare x --out s --axis a=b --axis a=c", "tether: --axis a is given twice"),
        ("prepare x --out s --ends low", "tether: --ends 'low' is not two words"),
        ("prepare x --out s --instructions no.txt", "tether: --instructions no.txt: No such file"),
        (
            "prepare x --out s --instructions latin.txt",
            "tether: --instructions latin.txt is not UT",
        ),
        ("prepare x.jsonl --out s --per-form 1", "tether: a form of 1 text has no place for 2"),
        ("prepare x.jsonl --out latin.txt", "tether: latin.txt is a file; give a new folder"),
        ("analyse a.csv", "tether: tether human-study analyse: the following arguments are"),
        ("analyse a.csv --key no.json", "tether: there is no key 'no.json'"),
    ],
)
def test_mistakes_are_one_line(words: str, message: str, run) -> None:
    Path("latin.txt").write_bytes(b"caf\xe9")
    code, out, err = run(*words.split())
    assert code == 2 and out == ""
    assert err.startswith(message) and err.count("\n") == 1


def test_help(run) -> None:
    assert run()[1] == run("--help")[1] and "prepare" in run()[1]
