"""Simulated schedules, against what is known of them, and proofs that ranks do the same."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from torch.distributed.pipelining import schedules

from corsac.distributed import MatchingError
from corsac.distributed._planning.matching import Exchange, check_matching
from corsac.distributed._planning.names import SCHEDULES
from corsac.distributed._planning.network import Network
from corsac.distributed._planning.schedules import (
    Action,
    orders_of,
    schedule_name,
    takes_several_stages,
)
from corsac.distributed._planning.timeline import BUCKET, StageTimes, simulate

AT_ONCE = Network(1e30, 0.0)


def orders(schedule, ranks, microbatches):
    name = schedule_name(schedule)
    return orders_of(name, ranks, ranks * (1 + takes_several_stages(name)), microbatches)


def stage(forward=1.0, backward=2.0, weights=1.0, received=0.0, held=1.0, gradients=0.0):
    return StageTimes(forward, backward, weights, received, received, held, gradients)


@pytest.mark.parametrize("name", ["GPipe", "1F1B"])
@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 3), (2, 2), (4, 6), (5, 16)])
def test_orders_are_those_of_pytorch(name, ranks, microbatches):
    cls = getattr(schedules, f"Schedule{name}")
    if not hasattr(cls, "_get_pipeline_order"):
        pytest.skip("this PyTorch does not say the order of its schedules")
    own = SimpleNamespace(_num_stages=ranks, _n_microbatches=microbatches)
    expected = cls._get_pipeline_order(own)
    for rank, order in enumerate(orders_of(name, ranks, ranks, microbatches)):
        computed = [one for one in order if one.kind in ("F", "B")]
        wanted = [one for one in expected[rank] if one is not None]
        wanted = [own for one in wanted if (own := str(one.computation_type.value)) in ("F", "B")]
        # Its numbers of microbatches are not those that it runs on the last rank.
        assert [own.kind for own in computed] == wanted
        for kind in ("F", "B"):
            numbers = [own.microbatch for own in computed if own.kind == kind]
            assert numbers == list(range(microbatches))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 4), (2, 8), (4, 4), (4, 32)])
def test_the_bubble_is_the_known_one(schedule, ranks, microbatches):
    step = simulate(orders(schedule, ranks, microbatches), [stage()] * ranks, AT_ONCE)
    assert step.seconds == pytest.approx(3 * (microbatches + ranks - 1))
    assert step.bubble == pytest.approx((ranks - 1) / (microbatches + ranks - 1))


def test_schedules_of_several_stages_have_smaller_bubbles():
    halves = [stage(0.5, 1.0, 0.5)] * 8
    steps = {name: simulate(orders(name, 4, 16), halves, AT_ONCE) for name in SCHEDULES[2:]}
    assert steps["interleaved1f1b"].bubble == pytest.approx(3 / (2 * 16 + 3))
    assert steps["interleaved_zero_bubble"].bubble < steps["interleaved1f1b"].bubble
    assert steps["zbv_zero_bubble"].bubble < steps["interleaved1f1b"].bubble
    for step in steps.values():
        assert step.busy == pytest.approx([48.0] * 4)


def test_microbatches_in_flight_are_held():
    stages = [stage()] * 4
    assert simulate(orders("1f1b", 4, 8), stages, AT_ONCE).held == [4, 3, 2, 1]
    assert simulate(orders("gpipe", 4, 8), stages, AT_ONCE).held == [8] * 4


def test_actions_take_time_besides_their_passes():
    plain = simulate(orders("1f1b", 2, 8), [stage()] * 2, AT_ONCE)
    slow = simulate(orders("1f1b", 2, 8), [stage()] * 2, AT_ONCE, overhead=0.25)
    # The first rank has a forward and a backward pass for each microbatch, and waits for one more of both.
    assert slow.seconds == plain.seconds + 2 * 9 * 0.25
    assert slow.busy == plain.busy
    assert slow.bubble > plain.bubble


def test_messages_take_latency_and_bandwidth_one_after_the_other():
    # Rank 0 sends 10 bytes at 1 and at 2, for 5 s each after 1 s of latency; the second waits for the first.
    stages = [stage(1.0, 1.0), stage(1.0, 1.0, received=10.0)]
    step = simulate(orders("gpipe", 2, 2), stages, Network(2.0, 1.0))
    boxes = {(own.kind, own.stage, own.microbatch): own for own in step.boxes}
    assert (boxes["SEND_F", 0, 0].start, boxes["SEND_F", 0, 0].end) == (1.0, 7.0)
    assert (boxes["SEND_F", 0, 1].start, boxes["SEND_F", 0, 1].end) == (6.0, 12.0)
    assert boxes["F", 1, 1].start == 12.0
    assert boxes["B", 1, 0].start == 13.0
    assert boxes["B", 0, 0].start == 14.0 + 6.0
    assert step.seconds == boxes["B", 0, 1].end == 19.0 + 6.0 + 1.0


def test_gradients_are_summed_during_the_last_backward_pass():
    # Four buckets of a fifth of the pass each: only the last one is left.
    network = Network(BUCKET, 0.0)
    one = stage(1.0, 8.0, gradients=4.0 * BUCKET)
    step = simulate(orders("1f1b", 1, 3), [one], network, copies=2)
    assert step.exposed == pytest.approx([1.0])
    assert step.seconds == pytest.approx(27.0 + 1.0)
    slow = simulate(orders("1f1b", 1, 3), [one], Network(BUCKET / 4, 0.0), copies=2)
    assert slow.seconds == pytest.approx(27.0 - 8.0 + 2.0 + 16.0)


def test_a_ring_takes_the_known_time():
    network = Network(100.0, 0.5)
    assert network.send(50.0) == 1.0
    assert network.all_gather(400.0, 4) == 3 * (0.5 + 1.0)
    assert network.all_reduce(400.0, 4) == 6 * (0.5 + 1.0)
    assert network.all_reduce(400.0, 1) == 0.0
    for wrong in ((0.0, 1.0), (1.0, -1.0), (float("nan"), 0.0)):
        with pytest.raises(ValueError, match="expected"):
            Network(*wrong)


def test_measured_sums_take_what_lies_between_sizes():
    network = Network(100.0, 0.5, ((1.0, 0.25), (3.0, 1.25), (5.0, 1.5)))
    assert network.send(4.0) == 0.54, "messages are as before"
    # Each of two ranks sends half of it.
    seconds = [network.all_gather(size, 2) for size in (0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 30.0)]
    assert seconds == [0.25, 0.25, 0.75, 1.25, 1.375, 1.5, 1.6]
    assert network.all_reduce(8.0, 4) == 6 * 0.75
    with pytest.raises(ValueError, match="hops: expected ascending sizes, got"):
        Network(100.0, 0.5, ((3.0, 1.0), (3.0, 2.0)))


def test_backward_passes_that_are_split_take_longer():
    one = StageTimes(1.0, 3.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    kinds = {"F": 1.0, "I": 2.0 * 1.5, "W": 1.0 * 1.5}
    order = [Action(kind, 0, 0) for kind in kinds]
    step = simulate([order], [one], AT_ONCE, split=1.5)
    assert [own.end - own.start for own in step.boxes] == list(kinds.values())
    whole = simulate([[Action("F", 0, 0), Action("B", 0, 0)]], [one], AT_ONCE, split=1.5)
    assert whole.seconds == 4.0


def test_orders_that_wait_for_ever_are_an_error():
    wrong = [[Action("B", 0, 0)], [Action("F", 1, 0)]]
    with pytest.raises(ValueError, match="rank 0 waits for ever before"):
        simulate(wrong, [stage()] * 2, AT_ONCE)


def test_numbers_that_a_schedule_does_not_allow_are_an_error():
    for name, ranks, stages, microbatches in (
        ("1F1B", 4, 4, 3),
        ("1F1B", 2, 4, 4),
        ("Interleaved1F1B", 4, 6, 8),
        ("GPipe", 2, 2, 0),
    ):
        with pytest.raises(ValueError, match=r"expected|needs"):
            orders_of(name, ranks, stages, microbatches)


# -- what ranks do together ---------------------------------------------------------------------


def ring():
    """Four ranks in two groups: messages within pairs, a sum of all."""
    found = []
    for rank in range(4):
        other = rank ^ 1
        one = [
            Exchange("send", (other,), 8.0, "a"),
            Exchange("receive", (other,), 8.0, "a"),
            Exchange("all_reduce", tuple(range(4)), 16.0, "gradients"),
            Exchange("all_gather", (rank & 2, (rank & 2) + 1), 4.0, "b"),
        ]
        found.append(one)
    return found


def test_exchanges_that_fit_are_counted():
    assert check_matching(ring()) == 4 + 1 + 2


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lambda own: own[1].__setitem__(0, own[1][0]._replace(bytes=9.0)), "send a to 0 .9 bytes"),
        (lambda own: own[2].pop(0), "wait for ever"),
        (lambda own: own[2].pop(1), "rank 2 never receives from rank 3"),
        (lambda own: own[3].pop(2), "wait for ever|but rank"),
        (lambda own: own[3].__setitem__(2, own[3][2]._replace(bytes=1.0)), "but rank 3"),
        (lambda own: own[3].__setitem__(2, own[3][2]._replace(kind="all_gather")), "but rank"),
        (lambda own: own[0].insert(2, own[0].pop(3)), "wait for ever"),
        (lambda own: own[0].__setitem__(0, own[0][0]._replace(ranks=(7,))), "rank 0 of 4"),
        (lambda own: own[0].__setitem__(0, own[0][0]._replace(ranks=(0,))), "rank 0 of 4"),
        (lambda own: own[0].__setitem__(2, own[0][2]._replace(ranks=(1, 2, 3))), "rank 0 of 4"),
    ],
)
def test_faults_in_exchanges_are_found(plant, said):
    programs = ring()
    plant(programs)
    with pytest.raises(MatchingError, match=said):
        check_matching(programs)


def test_receives_before_sends_on_both_sides_wait_for_ever():
    programs = ring()
    for own in programs[:2]:
        own[0], own[1] = own[1], own[0]
    with pytest.raises(MatchingError, match=r"ranks wait for ever: rank 0 at: receive a from 1"):
        check_matching(programs)


def test_messages_in_another_order_are_a_fault():
    first = [Exchange("send", (1,), 8.0, "a"), Exchange("send", (1,), 8.0, "b")]
    second = [Exchange("receive", (0,), 8.0, "b"), Exchange("receive", (0,), 8.0, "a")]
    with pytest.raises(MatchingError, match="send a to 1"):
        check_matching([first, second])


def test_random_faults_are_found():
    numbers = random.Random(0)
    for _ in range(200):
        programs = ring()
        own = numbers.choice(programs)
        del own[numbers.randrange(len(own))]
        with pytest.raises(MatchingError):
            check_matching(programs)
