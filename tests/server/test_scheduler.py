"""Four schedulers that hear of each other with delays: never too many attempts, all jobs done, no member before its turn."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from harness import federation
from harness.federation import MEMBERSHIP, OPERATORS, RECEIVER, make
from ppca.federation.headers import MAX_NUMBERS, is_well_formed
from ppca.federation.objects import Header, sha256
from ppca.federation.state import Attempts, Objects
from ppca.server.scheduler import BEGIN, PREPARE, PROPOSE, STOP, Scheduler, Step, View

DURATION = 1.0
LOADING = 0.3


class Server:
    """One server of the simulation: what it has heard, its scheduler, and the attempts that run there."""

    def __init__(self, world: World, number: int, places: int) -> None:
        self.world, self.number, self.name, self.places = world, number, OPERATORS[number], places
        self.objects: dict[str, Objects] = {}
        self.slow = 1.0
        self.boot()

    def boot(self) -> None:
        self.generation = object()
        self.running: dict[str, int] = {}
        self.scheduler = Scheduler(
            OPERATORS,
            self.name,
            proposes=self.number == 0,
            places=self.places,
            clock=lambda: self.world.now,
            random=self.world.random.random,
        )

    def restart(self) -> None:
        """Kill it and start it again: it remembers objects only."""
        self.boot()
        for job, objects in self.objects.items():
            last = max(objects.starts(), default=0)
            if self.name in objects.ready(last) and self.name not in objects.ended(last):
                self.say("ended", job, attempt=last, outcome="failed", why="restarted", final=False)
            self.look(job)
        self.act()

    def hear(self, header: Header) -> None:
        objects = self.objects.setdefault(header.job, Objects())
        if header.digest in {known.digest for known in objects.headers}:
            return
        objects.add(header)
        self.look(header.job)
        self.act()

    def look(self, job: str) -> None:
        objects = self.objects[job]
        done = self.world.is_done(objects)
        ready = next(objects.of("contribution"), None) is not None and not done
        view = View.of(job, objects, MEMBERSHIP, self.name, startable=ready)
        if done:
            self.scheduler.forget(job)
        else:
            self.scheduler.see(view)

    def say(self, kind: str, job: str, **about: Any) -> None:
        header = self.world.header(kind, self.name, job, **about)
        self.hear(header)
        self.world.spread(header, self.number)

    def act(self) -> None:
        while steps := self.scheduler.steps():
            for step in steps:
                self.do(step)

    def do(self, step: Step) -> None:
        world, generation = self.world, self.generation
        if step.what == PROPOSE:
            world.order.append(step.job)
            self.say("start", step.job, attempt=step.attempt, turn=step.turn)
        elif step.what == PREPARE:
            self.running[step.job] = step.attempt
            assert len(self.running) <= self.places, "more attempts than places"
            world.later(LOADING * self.slow, lambda: self.loaded(step, generation))
        elif step.what == BEGIN:
            world.begun.setdefault((step.job, step.attempt), {})[self.name] = world.now
            world.later(DURATION, lambda: self.finish(step, generation))
        else:
            assert step.what == STOP
            self.end(step, "withdrawn", step.why)

    def loaded(self, step: Step, generation: object) -> None:
        if generation is self.generation and self.running.get(step.job) == step.attempt:
            self.say("ready", step.job, attempt=step.attempt)

    def finish(self, step: Step, generation: object) -> None:
        if generation is not self.generation or self.running.get(step.job) != step.attempt:
            return
        times = self.world.begun[step.job, step.attempt]
        if len(times) == 4:
            self.end(step, "finished", "")
        else:  # the others are late: as a worker that waits for its peers
            self.world.later(0.5, lambda: self.finish(step, generation))

    def end(self, step: Step, outcome: str, why: str) -> None:
        del self.running[step.job]
        self.scheduler.release(step.job)
        self.say("ended", step.job, attempt=step.attempt, outcome=outcome, why=why, final=False)


class World:
    """Time, messages and four servers."""

    def __init__(self, seed: int = 0, places: Sequence[int] = (1, 1, 1, 1), delay: float = 0.2) -> None:
        self.random, self.now, self.delay = Random(seed), 0.0, delay
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.order: list[str] = []
        self.begun: dict[tuple[str, int], dict[str, float]] = {}
        self.servers = [Server(self, number, many) for number, many in enumerate(places)]

    def header(self, kind: str, author: str, job: str, **about: Any) -> Header:
        self.count += 1
        return Header(kind, author, job, about, sha256(f"{self.count}".encode()), 100)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, action))

    def spread(self, header: Header, origin: int | None = None) -> None:
        for server in self.servers:
            if server.number != origin:
                wait = self.delay * (0.1 + self.random.random())
                self.later(wait, lambda server=server: server.hear(header))  # type: ignore[misc]

    def submit(self, job: str, member: str, place: int) -> None:
        for kind, author, about in (
            ("job", member, {}),
            ("offer", "alpha", {"server": 0, "place": place}),
            ("contribution", member, {}),
        ):
            self.spread(self.header(kind, author, job, **about))

    def is_done(self, objects: Objects) -> bool:
        last = objects.ended(max(objects.starts(), default=0))
        return sum(header.about["outcome"] == "finished" for header in last.values()) == 4

    def run(self, until: float) -> None:
        """Go on until a time; every server looks again once a second."""
        for tick in range(int(self.now), int(until)):
            for server in self.servers:
                self.later(max(0.0, tick - self.now), server.act)
        while self.events and self.events[0][0] <= until:
            self.now, _, action = heapq.heappop(self.events)
            action()

    def done(self) -> set[str]:
        return {job for job, objects in self.servers[0].objects.items() if self.is_done(objects)}

    def attempts(self, job: str) -> Attempts:
        return Attempts.of(self.servers[0].objects[job], MEMBERSHIP)


def jobs(world: World, number: int, member: str = "north", first: int = 0) -> list[str]:
    names = [sha256(f"{member} {i}".encode()) for i in range(first, first + number)]
    for place, name in enumerate(names, first + 1):
        world.submit(name, member, place)
    return names


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("places", [(1, 1, 1, 1), (3, 3, 3, 3), (4, 1, 2, 3), (1, 4, 4, 4)])
def test_jobs_that_become_ready_together_are_all_done_at_the_first_attempt(seed: int, places: Sequence[int]) -> None:
    world = World(seed, places)
    names = jobs(world, 10)
    world.run(200)
    assert world.done() == set(names)
    if min(places) == places[0]:
        assert [world.attempts(name).last for name in names] == [1] * 10
    assert all(world.attempts(name).failures == 0 for name in names)


def test_jobs_of_one_member_are_started_in_order() -> None:
    world = World()
    names = jobs(world, 8)
    world.run(100)
    first = world.order[0]  # the others were not yet known when it was started
    assert world.order[1:] == [name for name in names if name != first]


def test_members_take_turns() -> None:
    """Twelve jobs of one member delay the job of another by one attempt, not by twelve."""
    world = World()
    many = jobs(world, 12, "north")
    world.run(5)
    (one,) = jobs(world, 1, "south", first=12)
    before = len(world.order)
    world.run(100)
    assert world.order.index(one) <= before + 1
    assert world.done() == {*many, one}


def test_members_share_the_time_and_not_the_number_of_attempts() -> None:
    """Jobs of one member took 12 hours each: those of another one waited 12 hours for every start."""
    now = 0.0
    scheduler = Scheduler(OPERATORS, "alpha", proposes=True, places=1, clock=lambda: now)
    views = {
        f"{member}{number}": View(f"{member}{number}", member, number, waiting=True)
        for number in range(40)
        for member in ("north", "south")
    }
    held = {"north": 3600.0, "south": 300.0}
    used = {"north": 0.0, "south": 0.0}
    least = []
    for view in views.values():
        scheduler.see(view)
    for turn in range(1, 41):
        view = scheduler.queue()[0]
        started = replace(view, waiting=False, open=True, attempt=1, turn=turn)
        scheduler.see(started)
        assert [step.what for step in scheduler.steps()] == [PREPARE]
        scheduler.see(replace(started, ready=frozenset(OPERATORS)))
        assert [step.what for step in scheduler.steps()] == [BEGIN]
        now += held[view.member]
        used[view.member] += held[view.member]
        scheduler.release(view.job)
        scheduler.forget(view.job)
        least.append(abs(used["north"] - used["south"]))
    assert max(least) <= 3600 + 300
    assert used["south"] > 8000


def test_time_that_no_other_member_wanted_is_not_held_against_a_member() -> None:
    """A member that comes later begins with the time of those that are there: it cannot keep them waiting for long."""
    now = 0.0
    scheduler = Scheduler(OPERATORS, "alpha", proposes=True, places=1, clock=lambda: now)
    for number in range(3):
        scheduler.see(View(f"n{number}", "north", number, waiting=True))
    scheduler._seconds["north"] = 50_000.0
    scheduler.queue()
    for number in range(3):
        scheduler.see(View(f"s{number}", "south", 10 + number, waiting=True, turn=0))
    scheduler.queue()
    assert scheduler._seconds["south"] == 50_000.0


def test_who_submits_the_job_of_another_member_again_does_not_delay_it() -> None:
    """The first author by digest counted: a member with twenty jobs could take another one's job into its own line."""

    def place(again: bool) -> int:
        scheduler, names = Scheduler(OPERATORS, "alpha", proposes=True, places=1), {}
        for number in range(21):
            of = federation.job(name=f"job {number}")
            mine = number == 20
            said = [make(RECEIVER if mine else "north", "job", of, of.data)]
            said += [make("north", "job", of, of.data, salt=salt) for salt in range(8) if mine and again]
            told = [item for item in federation.story(of) if item.header.kind not in ("job", "start", "ready", "ended")]
            objects = Objects([item.header for item in (*said, *told)])
            names[of.id] = number
            view = View.of(of.id, objects, MEMBERSHIP, "alpha", startable=True)
            scheduler.see(replace(view, place=number + 1))
        return [names[view.job] for view in scheduler.queue()].index(20)

    assert place(again=False) <= 1
    assert place(again=True) <= 1


def test_a_member_takes_no_more_places_than_its_share() -> None:
    world = World(places=(4, 4, 4, 4))
    jobs(world, 20, "north")
    jobs(world, 20, "south", first=20)
    world.run(60)
    first = [job in {sha256(f"north {i}".encode()) for i in range(20)} for job in world.order[4:20]]
    assert abs(sum(first) - 8) <= 2


@pytest.mark.parametrize("seed", range(20))
def test_servers_that_restart_lose_no_job(seed: int) -> None:
    world = World(seed)
    names = jobs(world, 10)
    for _ in range(12):
        world.later(world.random.uniform(0, 40), world.random.choice(world.servers).restart)
    world.run(1500)
    assert world.done() == set(names)


@pytest.mark.parametrize("seed", range(10))
def test_a_slow_server_delays_and_nothing_else(seed: int) -> None:
    world = World(seed)
    world.servers[2].slow = 60.0 if seed % 2 else 150.0  # loading takes 18 or 45 s
    names = jobs(world, 5)
    world.run(500)
    assert world.done() == set(names)
    assert [world.attempts(name).last for name in names] == [1] * 5


def test_a_server_that_is_never_ready_for_one_job_does_not_stop_the_others() -> None:
    world = World()
    names = jobs(world, 5)
    bad, server = names[0], world.servers[3]
    loaded = server.loaded
    server.loaded = lambda step, generation: None if step.job == bad else loaded(step, generation)  # type: ignore[method-assign]
    world.run(400)
    assert world.done() == set(names[1:])
    tried = world.attempts(bad)
    assert tried.failures == 0
    assert tried.idle >= 1
    server.loaded = loaded  # type: ignore[method-assign]
    world.run(3000)
    assert world.done() == set(names), "and it is done once that server is well"


@pytest.mark.parametrize("seed", range(10))
def test_a_first_server_that_proposes_everything_at_once_only_delays(seed: int) -> None:
    """A lying server 0: the others reserve places for different jobs, wait, withdraw, and go on when it behaves."""
    world = World(seed, delay=2.0)
    names = jobs(world, 6)
    world.run(6)
    liar = world.servers[0]
    for turn, name in enumerate(names, 100):
        last = max(liar.objects[name].starts(), default=0)
        if not world.is_done(liar.objects[name]) and not Attempts.of(liar.objects[name], MEMBERSHIP).open:
            liar.say("start", name, attempt=last + 1, turn=turn)
    world.run(3000)
    assert world.done() == set(names)


@pytest.mark.parametrize("seed", range(10))
def test_a_server_that_says_ready_and_ended_falsely_only_delays(seed: int) -> None:
    world = World(seed)
    names = jobs(world, 6)
    liar = world.servers[1]

    def lie() -> None:
        for name in names:
            last = max(liar.objects[name].starts(), default=0)
            if last and liar.name not in liar.objects[name].ended(last) and liar.running.get(name) != last:
                liar.say("ended", name, attempt=last, outcome="withdrawn", why="a lie", final=False)
            elif last and liar.name not in liar.objects[name].ready(last):
                liar.say("ready", name, attempt=last)

    for moment in range(1, 30, 2):
        world.later(moment, lie)
    world.run(3000)
    assert world.done() == set(names)


def waits(scheduler: Scheduler, set_time: Callable[[float], None], start: float) -> float:
    """Seconds until a reservation is withdrawn."""
    for tenth in range(100_000):
        set_time(start + tenth / 10)
        if steps := scheduler.steps():
            assert [step.what for step in steps] == [STOP]
            assert steps[0].why == "delta and gamma were not ready in time"
            assert scheduler.steps() == [], "said once"
            return tenth / 10
    raise AssertionError("it is never withdrawn")


@pytest.mark.parametrize(
    ("proposes", "idle", "loading", "patience"),
    [(True, 0, 0, 60), (False, 0, 0, 90), (True, 2, 0, 240), (True, 9, 0, 960), (True, 0, 100, 260)],
)
def test_a_reservation_is_withdrawn_after_its_patience_and_says_for_whom_it_waited(
    proposes: bool, idle: int, loading: float, patience: float
) -> None:
    """It waits longer if getting ready took long here, or if former attempts of the job did not begin."""
    now = 0.0

    def set_time(moment: float) -> None:
        nonlocal now
        now = moment

    scheduler = Scheduler(OPERATORS, "alpha", proposes=proposes, places=1, clock=lambda: now, random=lambda: 0.0)
    seen = View("job", "north", attempt=1, open=True, turn=1, idle=idle)
    scheduler.see(seen)
    assert [step.what for step in scheduler.steps()] == [PREPARE]
    set_time(loading)
    assert scheduler.steps() == [], "while it gets ready itself, it does not blame the others"
    scheduler.see(replace(seen, ready=frozenset(OPERATORS[:2])))
    assert waits(scheduler, set_time, loading) == patience


def test_pauses_grow_and_have_a_random_part() -> None:
    now, drawn = 0.0, 0.0
    scheduler = Scheduler(OPERATORS, "alpha", proposes=True, places=1, clock=lambda: now, random=lambda: drawn)
    waited = []
    for failures in (0, 1, 2, 5, 9, 30):
        for part in (0.0, 0.9):
            drawn = part
            scheduler.forget("job")
            scheduler.see(View("job", "north", waiting=True, attempt=failures, failures=failures))
            start, steps = now, scheduler.steps()
            while not steps:
                now += 0.25
                steps = scheduler.steps()
            waited.append(now - start)
    assert waited == [0.0, 0.0, 0.5, 1.5, 1.0, 3.0, 8.0, 22.5, 128.0, 358.5, 150.0, 420.0]


def test_a_former_server_0_cannot_use_up_the_numbers_of_turns() -> None:
    """It started a job with the largest number. No server could say a larger one: nothing was ever proposed again."""
    last = MAX_NUMBERS["turn"] - 1
    scheduler = Scheduler(OPERATORS, "alpha", proposes=True, places=1, clock=lambda: 1000.0)
    scheduler.started("north", last)
    for name in ("a", "b"):
        scheduler.see(View(job=name, member="south", waiting=True))
        (step,) = scheduler.steps()
        about = {"attempt": step.attempt, "turn": step.turn}
        assert (step.what, step.job) == (PROPOSE, name)
        assert is_well_formed(Header("start", "alpha", sha256(b""), about, sha256(b""), 1))
        scheduler.forget(name)
