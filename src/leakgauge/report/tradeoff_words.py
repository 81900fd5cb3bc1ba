"""A trade-off in words: the one sentence, what else must be said, and how sure it is."""

from __future__ import annotations

import math

from leakgauge.audit.result import UNDEFENDED, Measurement
from leakgauge.bounds import Bound
from leakgauge.catalogue import describe_metric
from leakgauge.metrics import Identification
from leakgauge.report.judgements import luck
from leakgauge.report.words import NOT_MEASURED, humanise, join, percent, show_hits
from leakgauge.tradeoff.batch_rule import BatchRule
from leakgauge.tradeoff.order import Order, Relation, expected_orders
from leakgauge.tradeoff.plan import Condition
from leakgauge.tradeoff.result import Tradeoff, TradeoffRow, cheapest
from leakgauge.training import Trained

_SURE = 0.05
"""More than a bound allows was found where luck explains it with a lower probability, all cells taken together."""


def sentence(result: Tradeoff) -> str:
    """The cheapest defence that meets the limit, or that none does; never said of a table with holes in it."""
    if not result.limit:
        names = join([humanise(point.row.defence) for point in result.front()])
        return f"No limit was given; no other row beats {names}." if names else "Nothing was measured yet."
    limits = join([_limit(result, name) for name in result.limit])
    if not result.complete:
        return f"Stopped early, so which defence keeps {limits} at the lowest cost is not known yet."
    best = cheapest(result)
    if best is None:
        return _none(result, limits)
    if best.defence == UNDEFENDED:
        return f"No defence is needed to keep {limits}; this is what these attacks found, not a proof."
    return f"The cheapest defence that keeps {limits} is {humanise(best.defence)}: {_cost(result, best)}."


def remarks(result: Tradeoff) -> list[str]:
    """What the sentence must not be read without: how sure it is, what it leaves out, where comfort would be false."""
    said = []
    best = cheapest(result) if result.limit and result.complete else None
    if best is not None and (worst := result.worst(best, result.axis)) is not None:
        condition, measurement = worst
        said.append(
            f"At its worst ({describe_condition(condition)}) {_score(measurement)}"
            + ("." if math.isnan(measurement.attack.low) else f", 95 % interval {_interval(measurement)}.")
        )
    if result.limit and result.complete:
        unjudged = [row for row in result.rows if result.within(row) is None or row.accuracy is None]
        doubtful = [row for row in unjudged if row.accuracy is not None and result.doubts(row)]
        if missing := [row for row in unjudged if row not in doubtful]:
            names = join([humanise(row.defence) for row in missing])
            said.append(f"Could not be chosen, because its accuracy or leakage was not measured: {names}.")
        said += [_doubt(result, row) for row in doubtful]
    defended = [row for row in result.rows if row.defence != UNDEFENDED]
    gaps = {humanise(row.defence): _comforts(result, row) for row in defended}
    if comforted := [f"{name} ({_examples(max(found))})" for name, found in gaps.items() if max(found, default=0) > 0]:
        said.append(
            "An attacker who does not know the defence would have identified fewer examples, which is false comfort: "
            f"{join(comforted)}."
        )
    if beaten := [f"{name} ({_examples(-min(found))})" for name, found in gaps.items() if min(found, default=0) < 0]:
        said.append(
            "The attacker who does not know the defence identified more than those who do, so there are stronger "
            f"attacks than theirs, and its result counts: {join(beaten)}."
        )
    said += [*_bounded(result), *_batches(result)]
    return [*said, *(sentence for order in expected_orders(result.rows) if (sentence := _ordered(result, order)))]


def _batches(result: Tradeoff) -> list[str]:
    """What choosing the batch by the rank rule buys, and what it costs."""
    rule = result.batch_rule
    if rule is None:
        return []
    if rule.batch_size == 1:
        return ["By the rank rule no layer gives whole examples away, not even in updates of one example."]
    said = f"By the rank rule no layer gives whole examples away in updates of {rule.batch_size} examples or more."
    plain = next((row for row in result.rows if row.defence == UNDEFENDED), None)
    bought = (
        [] if plain is None else [_bought(result, plain, size) for size in (*_below(result, rule), rule.batch_size)]
    )
    if shown := [one for one in bought if one]:
        said += f" Of undefended examples were identified, at the worst: {join(shown)}."
    trained = rule.utility
    if trained is not None and trained.accuracy.count and plain is not None and plain.accuracy is not None:
        usual = plain.utility.plan.chosen_recipe().batch_size if plain.utility is not None else 0
        said += (
            f" Trained in such batches the model reaches {100 * trained.accuracy.mean:.1f} %, against "
            f"{100 * plain.accuracy.mean:.1f} % in batches of {usual}."
        )
    return [said]


def _below(result: Tradeoff, rule: BatchRule) -> list[int]:
    return sorted({one.batch_size for one in result.conditions if one.batch_size < rule.batch_size})


def _bought(result: Tradeoff, row: TradeoffRow, size: int) -> str:
    cells = [row.cells[one] for one in result.conditions if one.batch_size == size and one in row.cells]
    found = [one.attack for cell in cells if (one := cell.measured(Identification.name)) is not None]
    worst = max(found, key=lambda one: one.mean, default=None)
    return "" if worst is None else f"{show_hits(worst)} in batches of {size}"


def show_at_most(bound: Bound | None) -> str:
    """The most that any attacker could identify, of a cell or of a training."""
    if bound is None:
        return NOT_MEASURED
    return "no bound" if bound.at_most is None else f"{100 * bound.at_most:.3g} %"


def _bounded(result: Tradeoff) -> list[str]:
    """What was found beside what any attacker could find at most, for the rows that have a bound."""
    found, broken = [], []
    for row in result.rows:
        worst = [
            (measurement.attack, bound, condition)
            for condition, bound in row.bounds.items()
            if bound.at_most is not None
            if (cell := row.cells.get(condition)) is not None
            if (measurement := cell.measured(Identification.name)) is not None
        ]
        if not worst:
            continue
        seen, most, _ = max(worst, key=lambda one: one[0].mean)
        later = row.over_training
        over = "" if later is None or later.at_most is None else f", {100 * later.at_most:.3g} % over its training"
        found.append(
            f"{humanise(row.defence)}: found {show_hits(seen)}, at most {show_at_most(most)} in one round{over}"
        )
        # Each cell of the table could be the one that luck favours.
        broken += [
            f"{humanise(row.defence)} ({describe_condition(place)})"
            for hits, bound, place in worst
            if luck(hits, bound) * sum(len(one.bounds) for one in result.rows) < _SURE
        ]
    said = (
        [f"What the attacks identified, beside the most that any attacker could: {'; '.join(found)}."] if found else []
    )
    if broken:
        said.append(f"More was found than the bound allows, so the client is not what it declares: {join(broken)}.")
    return said


def _ordered(result: Tradeoff, order: Order) -> str | None:
    """Whether leakage falls in the order that is expected, and if not, why; None where nothing was measured."""
    compared = order.compare(result)
    if not compared:
        return None
    names = " > ".join(humanise(row.defence) for row in order.rows)

    def of(relation: Relation) -> list[str]:
        chosen = [one for one in compared if one.relation is relation]
        return [
            f"{humanise(one.more)} and {humanise(one.less)} ({describe_condition(one.condition)})" for one in chosen
        ]

    total, apart, reversed_ = len(compared), of(Relation.APART), of(Relation.REVERSED)
    overlap, at_nulls = of(Relation.OVERLAP), of(Relation.AT_NULLS)
    if not order.strict:
        if not reversed_:
            return (
                f"Leakage rises nowhere along {names} by more than the 95 % interval of the difference on the same "
                f"examples; in {len(apart)} of {total} comparisons it falls by more."
            )
        return (
            f"Leakage should not rise along {names}, but does by more than the 95 % interval of the difference on the "
            f"same examples for {join(reversed_)}: there the attack on the second is the stronger one at this budget."
        )
    if len(apart) == total:
        return f"{names} holds beyond the 95 % intervals, under every attacker who knows the defence."
    reasons = [f"It holds beyond the 95 % interval of the difference in {len(apart)} of {total} comparisons."]
    if overlap:
        reasons.append(
            "The difference is within its interval, because the examples are few or the attacks too weak, for "
            f"{join(overlap)}."
        )
    if at_nulls:
        reasons.append(f"Neither leaks more than chance, so nothing is left to tell apart, for {join(at_nulls)}.")
    if reversed_:
        reasons.append(
            f"It is the other way round for {join(reversed_)}: there the attack on the second is the stronger one."
        )
    return f"Expected: {names}. {' '.join(reasons)}"


def utility(trained: Trained) -> str:
    """What a training came to, in one sentence."""
    name, spent = humanise(trained.plan.defence), trained.overhead
    if trained.diverged:
        return f"{name}: the training diverged at step {trained.steps}; lower the learning rate."
    seen = trained.accuracy
    accuracy = f"{100 * seen.mean:.1f} % ({percent(seen.low, seen.high)})" if seen.count else NOT_MEASURED
    time = f"a step takes {spent.median:.2f} times an undefended one" if spent.count else "time not measured"
    return f"{name}: accuracy {accuracy} after {trained.steps} steps; {time}."


def describe_condition(condition: Condition) -> str:
    """
    >>> describe_condition(Condition("honest_but_curious", 4))
    'honest but curious, batch 4'
    """
    return f"{condition.threat_model.replace('_', ' ')}, batch {condition.batch_size}"


def show_score(measurement: Measurement, value: float) -> str:
    """A score with as many digits as its metric carries, and its unit."""
    return measurement.metric.show(value, digits=2)


def _none(result: Tradeoff, limits: str) -> str:
    points = sorted(result.points(), key=lambda point: (point.leak, -point.accuracy.mean))
    if not points:
        return f"Whether a defence keeps {limits} was not measured."
    nearest = points[0]
    if any(result.within(row) is None and result.doubts(row) for row in result.rows):
        return f"Inconclusive: no defence is known to keep {limits}, and of some that cannot be told."
    return (
        f"No defence that was tried keeps {limits}; {humanise(nearest.row.defence)} comes nearest with "
        f"{nearest.leakage.mean:.3g}."
    )


def _doubt(result: Tradeoff, row: TradeoffRow) -> str:
    where = join([describe_condition(one) for one in result.doubts(row)])
    return (
        f"Could not be chosen, because what was found is inconclusive ({where}): {humanise(row.defence)}; "
        "give the attacks a larger budget."
    )


def _cost(result: Tradeoff, row: TradeoffRow) -> str:
    assert row.accuracy is not None
    bare = next((one.accuracy for one in result.rows if one.defence == UNDEFENDED), None)
    accuracy = f"{100 * row.accuracy.mean:.1f} % accuracy"
    if bare is not None:
        accuracy += f" ({100 * (row.accuracy.mean - bare.mean):+.1f} points)".replace("-", "−")
    return accuracy if math.isinf(row.overhead) else f"{accuracy} and {row.overhead:.2f} times the time per step"


def _limit(result: Tradeoff, name: str) -> str:
    metric = describe_metric(name)
    called = name if metric.binary else metric.title
    return f"{called} at {result.limit[name]:g} or {'less' if metric.higher_is_leakier else 'more'}"


def _score(measurement: Measurement) -> str:
    metric = measurement.metric
    if metric.binary:
        return f"{show_hits(measurement.attack)} examples were {metric.title.lower()}"
    return f"{metric.title} was {show_score(measurement, measurement.attack.mean)}"


def _interval(measurement: Measurement) -> str:
    seen = measurement.attack
    if measurement.metric.binary:
        return percent(seen.low, seen.high)
    return f"{show_score(measurement, seen.low)} to {show_score(measurement, seen.high)}"


def _comforts(result: Tradeoff, row: TradeoffRow) -> list[float]:
    found = [result.false_comfort(row, condition) for condition in result.conditions]
    return [comfort for comfort in found if comfort is not None]


def _examples(share: float) -> str:
    return f"{100 * share:.0f} % of the examples"
