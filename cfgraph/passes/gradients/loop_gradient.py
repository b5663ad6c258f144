"""Gradient of a loop: a backward loop that runs its iterations in reverse order.

    forward:   Enter ─▶ Merge ─▶ Switch ─▶ body ─▶ NextIteration;  Exit
    backward:  gradient of the Exit ─▶ Enter ─▶ Merge ─▶ Switch ─▶ body's gradient ─▶ NextIteration;
               its Exit is the gradient of the forward loop's input

The gradient of an invariant is accumulated in a variable of its own, which starts with zeros.
"""

from __future__ import annotations

from cfgraph.analysis.loops.path_conditions import PathCondition
from cfgraph.analysis.loops.regions import Region
from cfgraph.analysis.loops.while_loop import LoopVariable, WhileLoop
from cfgraph.ir.graph import Node, Output
from cfgraph.passes.gradients.backward_loop import BackwardLoop
from cfgraph.passes.gradients.differentiable_loop import differentiable_loop
from cfgraph.passes.gradients.recomputed_loop import Recomputation
from cfgraph.passes.gradients.reverse import ReverseMode
from cfgraph.passes.gradients.single_trip_frame import SingleTripFrame, is_single_trip


def reverse_loop(around: ReverseMode, region: Region) -> None:
    """Hand the gradients of a loop's Exits to what enters it."""
    exits = [node.output() for node in region.frame.exits]
    arrived = any(around.parts(item) for item in exits)
    if not arrived and not around.stacks.reaches(region.frame):
        return
    if region.frame.loop_cond in around.site.work.segments:
        segment = Recomputation(around, region)
        reverse_loop(segment.reverse, segment.region)
        segment.accumulate_outer()
        return
    guard = around.regions.entry_condition(region)
    if is_single_trip(region):
        _reverse_single_trip_frame(around, region, guard)
        return
    form = differentiable_loop(region.frame, around.wanted)
    site = BackwardLoop(around.site, form, around.regions.guards, guard)
    inside = ReverseMode(site, region, around.regions, around.active, around.stacks)
    begun = [_start_variable(around, inside, variable, guard) for variable in form.variables]
    inside.run(reverse_loop)
    for variable, merge in zip(form.variables, begun, strict=True):
        _close_back_edge(inside, variable, merge)
    for enter in form.invariants:
        _accumulate_invariant(around, inside, enter, guard)
    around.site.wait_for(site, guard)
    around.stacks.ended(around.site, site)
    site.finish()


def _reverse_single_trip_frame(around: ReverseMode, region: Region, guard: PathCondition) -> None:
    """Hand the gradients of the Exits of a frame that is no loop to what enters it."""
    site = SingleTripFrame(around.site, region, around.regions.guards, guard)
    inside = ReverseMode(site, region, around.regions, around.active, around.stacks)
    for node in region.frame.exits:
        for part in around.parts(node.output()):
            item = node.inputs[0]
            inside.accumulate(item, part, inside.regions.guards.of(item))
    inside.run(reverse_loop)
    for node in region.frame.enters:
        for part in inside.parts(node.output()):
            around.accumulate(node.inputs[0], part, guard)


def _start_variable(
    around: ReverseMode, inside: ReverseMode, variable: LoopVariable, guard: PathCondition
) -> Node:
    """The variable that carries the gradient of a variable back; its Merge."""
    site, work = inside.site, around.site.work
    assert isinstance(site, BackwardLoop)
    work.at(variable.merge)
    enter = site.enter_variable(_exit_gradient(around, site.form, variable, guard), "b_exit")
    merge = work.add("Merge", (enter.output(), enter.output()), "b_switch")
    for port in range(2):
        work.known.tell(merge.output(port), site.known_shape(variable.merge.output(port)))
    switch = work.add("Switch", (merge.output(), site.back.cond), "b_merge")
    leaving = work.add("Exit", (switch.output(0),), "b_enter")
    work.known.tell(leaving.output(), around.site.known_shape(variable.initial))
    around.accumulate(variable.initial, leaving.output(), guard)
    back = variable.updated
    inside.accumulate(back, switch.output(1), inside.regions.guards.of(back))
    return merge


def _exit_gradient(
    around: ReverseMode, form: WhileLoop, variable: LoopVariable, guard: PathCondition
) -> Output:
    """The gradient of what a variable leaves the loop with; zeros where there is none."""
    parts = [part for node in variable.exits for part in around.parts(node.output())]
    if len(parts) > 1:
        return around.site.new("AddN", parts, "AddN").output()
    if parts:
        return parts[0]
    left = variable.exits or (_leave(around, form, variable, guard),)
    return around.site.zeros_like(left[0].output())


def _leave(
    around: ReverseMode, form: WhileLoop, variable: LoopVariable, guard: PathCondition
) -> Node:
    """An Exit for a variable that has none."""
    add, work = around.site.work.add_forward, around.site.work
    switch = add("Switch", (variable.merge.output(), form.cond.output()), "f_switch")
    leaving = add("Exit", (switch.output(0),), "f_exit")
    work.known.tell(leaving.output(), work.known.shape(variable.merge.output()))
    around.regions.guards.put(guard, leaving)
    return leaving


def _close_back_edge(inside: ReverseMode, variable: LoopVariable, merge: Node) -> None:
    """Hand the gradient of a variable to the iteration before."""
    site, work = inside.site, inside.site.work
    assert isinstance(site, BackwardLoop)
    work.at(variable.merge)
    total = inside.total(variable.merge.output())
    if total is None:
        zeros = site.zeros_like(variable.merge.output())
        # the last iteration must not go on
        total = work.add("Identity", (zeros,), "b_zeros", [site.back.step]).output()
    back = work.add("NextIteration", (total,), "b_next")
    work.graph.set_input(merge, 1, back.output())


def _accumulate_invariant(
    around: ReverseMode, inside: ReverseMode, enter: Node, guard: PathCondition
) -> None:
    """Sum up the gradient of an invariant over the iterations."""
    parts = inside.parts(enter.output())
    if not parts:
        return
    site, work = inside.site, inside.site.work
    assert isinstance(site, BackwardLoop)
    work.at(enter)
    source = enter.inputs[0]
    first = site.enter_variable(around.site.zeros_like(source), "b_acc")
    merge = work.add("Merge", (first.output(), first.output()), "b_acc_merge")
    work.known.tell(merge.output(), around.site.known_shape(source))
    switch = work.add("Switch", (merge.output(), site.back.cond), "b_acc_switch")
    total = work.add("AddN", (switch.output(1), *parts), "b_acc_add")
    back = work.add("NextIteration", (total.output(),), "b_acc_next")
    work.graph.set_input(merge, 1, back.output())
    leaving = work.add("Exit", (switch.output(0),), "b_acc_exit")
    work.known.tell(leaving.output(), around.site.known_shape(source))
    around.accumulate(source, leaving.output(), guard)
