from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from test_report_examples import audit, audit_of, null_of, record

from leakgauge.audit.record import Pictures
from leakgauge.audit.verdict import Verdict
from leakgauge.config import spell_defence
from leakgauge.defences import Clipping, GaussianNoise, NoDefence, chain
from leakgauge.report.headline import headline
from leakgauge.report.words import humanise
from leakgauge.types import Outcome

CERTIFIED, LEAKS, PARTLY, UNSURE, CLEAN, UNKNOWN = Verdict
NOISE = "clipping:max_norm=1+gaussian_noise:std=0.01"


ALL, SOME = "8 of 8 private images (p at most", "part of its data, 3 of 8 private images: numbers 1, 2 and 3 (p at most"
DOUBT = "what came back does not explain the update"
REMEDY = "give the attack a larger budget or try another one."


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ({"none": LEAKS}, f"This update gave away {ALL} 8e-09). No defence was tried."),
        ({"none": PARTLY}, f"This update gave away {SOME} 8e-09). No defence was tried."),
        ({"none": CLEAN}, "No leak was found in the undefended update. No defence was tried."),
        ({"none": UNSURE}, f"Inconclusive: {DOUBT}; {REMEDY}"),
        (
            {"none": LEAKS, "clipping": LEAKS, NOISE: CLEAN},
            f"This update gave away {ALL} 8e-09). What stopped it: clipping + Gaussian noise. Clipping did not help.",
        ),
        (
            {"none": LEAKS, "clipping": PARTLY, "pruning": LEAKS},
            f"This update gave away {ALL} 8e-09). No defence that was tried stopped it. "
            "Clipping lessened it but did not stop it (3 of 8). Pruning did not help.",
        ),
        (
            {"none": LEAKS, "clipping": CLEAN, "pruning": CLEAN, NOISE: CLEAN},
            f"This update gave away {ALL} 8e-09). What stopped it: clipping, pruning and clipping + Gaussian noise.",
        ),
        (
            {"none": PARTLY, "pruning:keep=0.1": CLEAN, "pruning:keep=0.5": PARTLY},
            f"This update gave away {SOME} 8e-09). What stopped it: pruning (keep 0.1). "
            "Pruning (keep 0.5) did not help.",
        ),
        ({"none": LEAKS, "pruning": UNKNOWN}, f"This update gave away {ALL} 8e-09). Pruning was not judged."),
        (
            {"none": LEAKS, "pruning": UNSURE, "clipping": CLEAN, "mixup": UNSURE},
            f"This update gave away {ALL} 8e-09). What stopped it: clipping. "
            f"Inconclusive with pruning and MixUp: {DOUBT}; {REMEDY}",
        ),
        ({"none": UNSURE, "pruning": UNSURE}, f"Inconclusive: {DOUBT}, so no defence is credited; {REMEDY}"),
        ({"none": UNSURE, "pruning": CLEAN}, f"Inconclusive: {DOUBT}, so no defence is credited; {REMEDY}"),
        (
            {"none": UNSURE, "pruning": LEAKS},
            f"Inconclusive: {DOUBT}, so no defence is credited; {REMEDY} "
            f"Yet this update gave away {ALL} 8e-09) with pruning.",
        ),
        ({"none": CLEAN, "pruning": CLEAN}, "No leak was found, undefended or defended."),
        ({"as recorded": LEAKS}, f"This recorded update gave away {ALL} 8e-09)."),
        ({"as recorded": PARTLY}, f"This recorded update gave away {SOME} 8e-09)."),
        ({"as recorded": CLEAN}, "No leak was found in this recorded update."),
        (
            {"as recorded": UNSURE},
            "Inconclusive: the declared client does not explain the update; "
            "see with `leakgauge explain` which one does.",
        ),
        (
            {"none": CLEAN, "pruning": UNKNOWN},
            "No leak was found in the undefended update. Pruning was not judged.",
        ),
        (
            {"none": CLEAN, "pruning": LEAKS},
            f"No leak was found without a defence, yet this update gave away {ALL} 8e-09) with pruning. "
            "Read both as what these attacks happened to find, not as the work of a defence.",
        ),
        (
            {"pruning": LEAKS, "clipping": CLEAN},
            f"With pruning, this update gave away {ALL} 8e-09). No leak was found with clipping. "
            "The undefended update was not audited; that there is something to stop is what the control shows.",
        ),
        (
            {"none": UNKNOWN, "pruning": CLEAN},
            "No leak was found with pruning. "
            "The undefended update was not judged; that there is something to stop is what the control shows.",
        ),
        (
            {"pruning": PARTLY},
            "With pruning, this update gave away 3 of 8 private images: numbers 1, 2 and 3 (p at most 8e-09). "
            "The undefended update was not audited, so whether a defence helped is unknown.",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(verdict.name.lower() for verdict in value.values()),
)
def test_the_headline_says_what_the_rows_support_then_the_control_and_the_power(
    verdicts: dict[str, Verdict], expected: str
) -> None:
    where = "simulated" if "as recorded" in verdicts else "undefended"
    control = f" The control worked: quasi_newton found 8 of 8 other images in {where} updates."
    power = " A leak of 1 of 8 images would have been seen with probability 0.68, of all 8 with 1.00."
    said = " ".join(headline(audit(verdicts)))
    assert said == expected + control + (power if CLEAN in verdicts.values() else "")


def test_where_nothing_was_judged_leakage_was_not_measured() -> None:
    said = headline(audit({"none": UNKNOWN, "pruning": UNKNOWN}))
    assert said == (
        "Leakage was not measured.",
        "There was no crowd of other images to pick the private ones from.",
    )


@pytest.mark.parametrize("verdicts", list(itertools.product(Verdict, repeat=3)))
def test_a_defence_is_said_to_have_stopped_a_leak_only_if_there_was_one_and_it_is_gone(
    verdicts: tuple[Verdict, Verdict, Verdict],
) -> None:
    bare, *defended = verdicts
    said = " ".join(headline(audit(dict(zip(("none", "pruning", "clipping"), verdicts)))))
    assert ("What stopped it" in said) == (bare.leaks and CLEAN in defended)
    assert ("gave away" in said) == any(verdict.leaks for verdict in verdicts)
    assert ("Inconclusive" in said) == (UNSURE in verdicts)
    assert ("so no defence is credited" in said) == (bare is UNSURE)
    assert ("not measured" in said) == (set(verdicts) == {UNKNOWN})


def test_one_private_image_is_singular() -> None:
    assert headline(audit_of([record(hits=1, size=1, chance=0.01)]))[0] == (
        "This update gave away 1 of 1 private image (p at most 1e-09)."
    )


def test_what_chance_explains_is_mentioned_but_is_no_leak() -> None:
    cases = [record("none", 8), record("pruning", 1, evidence=(0.5,) * 8)]
    said = headline(audit_of([*cases, *map(null_of, cases)]))
    assert said[1] == "What stopped it: pruning."
    assert said[-1] == "Still picked out of the crowd, but too weakly to be called a leak: 1 of 8 with pruning."


def test_images_that_were_not_recovered_count_as_private_images() -> None:
    scores = {"identification": (1.0, 1.0, math.nan, math.nan)}
    assert "2 of 4 private images" in headline(audit_of([record(size=4, scores=scores)]))[0]


def test_a_leak_under_one_attack_is_not_hidden_by_another_that_identifies_more_but_whose_null_does_too() -> None:
    loud = record(hits=7, attack="loud")
    null = replace(loud, null=1)
    telling = record(hits=5, attack="telling")
    result = audit_of([loud, null, telling, null_of(telling)])
    assert result["none"].verdict is LEAKS
    assert headline(result)[0].startswith("This update gave away 5 of 8 private images: numbers 1, 2, 3, 4 and 5 (")


def test_without_the_truth_leakage_was_not_measured() -> None:
    blind = record(scores={}, chance=math.nan, pictures=Pictures(None, torch.rand(2, 1, 4, 4)))
    assert headline(audit_of([blind]))[1].startswith("The private images are not known here")


def test_results_of_a_version_without_evidence_are_to_be_made_again() -> None:
    case = record(evidence=())
    said = headline(audit_of([case, null_of(case)]))
    assert said[0] == "Leakage was not measured."
    assert said[1].endswith("run the audit again.")


def test_why_nothing_was_judged_is_said() -> None:
    nothing = Pictures(torch.rand(8, 1, 4, 4), torch.full((8, 1, 4, 4), math.nan))
    case = record(hits=None, scores={}, pictures=nothing)
    assert headline(audit_of([]))[1] == "No attack has finished."
    assert headline(audit_of([case]))[1] == "No attack returned an image."
    refused = replace(case, outcome=Outcome.NOT_APPLICABLE)
    assert headline(audit_of([refused]))[1] == "No attack could be run on this update."


@pytest.mark.parametrize(
    ("defence", "name"),
    [
        ("none", "No defence"),
        (spell_defence(NoDefence()), "No defence"),
        (NOISE, "Clipping (max_norm 1) + Gaussian noise (std 0.01)"),
        ("laplace_noise", "Laplace noise"),
        ("mixing:rate=0.5,rounds=2", "Mixing (rate 0.5, rounds 2)"),
        (spell_defence(Clipping(2.0)), "Clipping (max_norm 2.0)"),
        (spell_defence(chain(Clipping(2.0), GaussianNoise(0.1))), "Clipping (max_norm 2.0) + Gaussian noise (std 0.1)"),
        ("<mine.Shield object at 0x7f>", "<mine.Shield object at 0x7f>"),
        ("", ""),
    ],
)
def test_a_defence_is_called_as_a_person_would(defence: str, name: str) -> None:
    assert humanise(defence) == name
