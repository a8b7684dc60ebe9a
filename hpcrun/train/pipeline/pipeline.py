"""A model whose stages are on several ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.errors import HpcrunError, pluralize
from hpcrun.run.job import print_line
from hpcrun.run.script_position import format_ranks
from hpcrun.run.waiting import waiting
from hpcrun.train.gradients.virtual_workers import count_workers
from hpcrun.train.pipeline.absent import present
from hpcrun.train.pipeline.checks import check_optimizer, check_pipeline_model, check_settings
from hpcrun.train.pipeline.cut import crossing_tensors, stage_ranges
from hpcrun.train.pipeline.graph import trace_model
from hpcrun.train.pipeline.layout import create_layout, require_divisible
from hpcrun.train.pipeline.lazy import initialize, is_lazy
from hpcrun.train.pipeline.measurement import measure
from hpcrun.train.pipeline.messages import Messages
from hpcrun.train.pipeline.plan import DEFAULT_MICRO_BATCH_SIZE, choose_cuts, count_stages, describe
from hpcrun.train.pipeline.saving import save_on_disk
from hpcrun.train.pipeline.schedule import held_micro_batches
from hpcrun.train.pipeline.stage_optimizer import StageOptimizer, build_optimizer
from hpcrun.train.pipeline.steps import StageSteps, make_functions
from hpcrun.train.pipeline.tensorflow_stage import StagePart, TensorFlowStage
from hpcrun.train.pipeline.variable_service import VariableService
from hpcrun.train.ranks.collectives import checked_allgather, checked_barrier, on_rank_0
from hpcrun.train.ranks.roles import RankRoles, set_roles
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Sequence

    import keras

    from hpcrun.train.gradients.reducer import Reducer
    from hpcrun.train.pipeline.cut import Costs
    from hpcrun.train.pipeline.graph import Graph
    from hpcrun.train.pipeline.plan import Plan

    Array = np.ndarray[Any, Any]


class Pipeline:
    """The stages of a model, of which this rank has one.

    Args:
        model: A functional or sequential Keras model; its functions are replaced, and weights of other stages released.
        stages: Number of stages, or the name of the last layer of each stage but the last.
        micro_batches: Number of micro-batches of a replica's shard of a batch (default: twice the number of stages).
        schedule: "1f1b" or "gpipe".
        recompute: Whether the backward pass repeats the forward pass, to hold fewer activations.

    Attributes:
        layout: This rank's place.
        cuts: The numbers of calls before each stage but the first.
        service: The service that fetches variables of other stages.

    Raises:
        HpcrunError: The model or the number of ranks does not fit the stages.
    """

    def __init__(
        self,
        model: keras.Model,
        stages: int | Sequence[str],
        micro_batches: int | None,
        *,
        schedule: str = "1f1b",
        recompute: bool = False,
    ) -> None:
        count = count_stages(stages)
        micro_batches = check_settings(count, micro_batches, schedule, recompute=recompute)
        require_divisible(world().size, count)
        check_pipeline_model(model)
        if count_workers() > 1:
            raise HpcrunError(
                f"--virtual-workers={count_workers()} divides batches among workers that have the whole model",
                hint="leave out --virtual-workers, or stages",
            )
        self.model, self.schedule, self.recompute = model, schedule, recompute
        self._micro_batches = micro_batches
        self.layout = create_layout(count)
        self._choose_stages(stages)
        self.service = VariableService(self.layout)
        self._stage_of: dict[int, int] = {}
        self._place_variables()
        stage = TensorFlowStage(self._part(), recompute=recompute)
        self.steps = StageSteps(self.layout, stage, Messages(self.layout), micro_batches, schedule)
        set_roles(RankRoles(self.layout.describe, lambda: self.steps.last_activity))
        make_functions(model, self.steps)
        save_on_disk(model)
        self._optimizer: keras.optimizers.Optimizer | None = None
        self._compiled: object = None  # what Keras keeps of the last compile
        self._announce()

    @property
    def own_variables(self) -> list[keras.Variable]:
        """The variables of the model and its optimizer that only the ranks of this stage have."""
        pairs = zip(self.service.variables, self.service.stages, strict=True)
        return [variable for variable, stage in pairs if stage == self.layout.stage]

    def compile(self) -> list[Reducer]:
        """Prepare what the last `compile` has set, and return the reducers; no effect if that is prepared. Collective.

        As in Keras, `compile` decides which weights are trainable.
        """
        model, config = self.model, self.model._compile_config  # noqa: SLF001
        if model.optimizer is None:
            return []
        is_new = model.optimizer is not self._optimizer
        if is_new or config is not self._compiled:
            if config.config.get("jit_compile") is True and world().rank == 0:
                print_line("INFO: jit_compile is off: the model has pipeline stages")
            check_optimizer(model.optimizer)
            self.steps.compile(self._part())
            if is_new:
                self._optimizer = build_optimizer(model, self._stage_of, self.service)
            self.steps.optimizer = StageOptimizer(self.layout, self._optimizer, self.steps.stage.sums)
            self._compiled = config
        return [self.steps.optimizer.reducer]

    def plan(self, batch_size: int | None = None) -> Plan:
        """Measure the stages on rank 0, and return their plan. Collective.

        Args:
            batch_size: The global batch size (default: 4 samples in each micro-batch).
        """
        micro_batches = self._micro_batches
        parts = self.layout.replica.size * micro_batches
        size = DEFAULT_MICRO_BATCH_SIZE if batch_size is None else max(1, batch_size // parts)
        costs = on_rank_0("the plan of the pipeline", lambda: measure(self._graph, size))
        return describe(self._graph, self.cuts, costs, (micro_batches, size, self.schedule), recompute=self.recompute)

    def broadcast(self) -> None:
        """Let the replicas have the weights of the first one, each stage for itself. Collective.

        Seeds of random layers of replica r are those of the first replica plus r.
        """
        checked_barrier("the weights of the replicas")
        with waiting("the weights of the replicas"):
            for variable, stage in zip(self.service.variables, self.service.stages, strict=True):
                if stage is None or (stage == self.layout.stage and self.layout.replica.size > 1):
                    self._broadcast(variable, world().comm if stage is None else self.layout.peers)

    def average_over_replicas(self, variables: Sequence[keras.Variable]) -> None:
        """Average variables of this stage over the replicas. Collective.

        Args:
            variables: Float variables of the model; those of other stages are ignored.
        """
        own = present(variables)
        checked_barrier("the mean of the replicas' statistics")
        if self.layout.replica.size == 1 or not own:
            return
        values = [np.asarray(variable.numpy()) for variable in own]
        sums = np.concatenate([value.reshape(-1).astype(np.float64) for value in values])
        total = np.empty_like(sums)
        with waiting("the mean of the replicas' statistics"):
            self.layout.peers.Allreduce(sums, total)
        parts = np.split(total / self.layout.replica.size, np.cumsum([value.size for value in values])[:-1])
        for variable, value, part in zip(own, values, parts, strict=True):
            variable.assign(part.reshape(value.shape).astype(value.dtype))

    def sum_over_pipeline(self, values: Array) -> Array:
        """Return the sum of an array over the stages of this replica. Collective within the replica."""
        total = np.empty_like(values)
        self.layout.pipeline.Allreduce(values, total)
        return total

    def _choose_stages(self, stages: int | Sequence[str]) -> None:
        """Cut the model on rank 0, as the others may measure other times. Collective."""

        def measure_on_rank_0(graph: Graph) -> Costs:
            return on_rank_0("the times of the layers", lambda: measure(graph, DEFAULT_MICRO_BATCH_SIZE))

        self._graph, self.cuts = choose_cuts(trace_model(self.model), stages, measure_on_rank_0)

    def _place_variables(self) -> None:
        """Give this stage's variables their values, those of rank 0 if they have any, and release the others."""
        for number, (start, end) in enumerate(stage_ranges(self.cuts, len(self._graph.calls))):
            self._stage_of |= {id(v): number for call in self._graph.calls[start:end] for v in call.variables}
        variables = self.model.variables
        lazy = [is_lazy(variable) for variable in variables]
        if len(set(checked_allgather("the variables of the stages", tuple(lazy)))) > 1:
            raise HpcrunError(
                "the ranks disagree about the variables that have values", hint="build the same model on all ranks"
            )
        comm = world().comm
        for variable, has_no_value in zip(variables, lazy, strict=True):
            owner = self._stage_of.get(id(variable))
            if has_no_value or owner in {None, 0}:
                continue
            if world().rank == 0:
                comm.Send(np.ascontiguousarray(variable.numpy()).reshape(-1).view(np.uint8), owner)
            elif world().rank == owner:
                value = np.array(variable.numpy(), order="C")
                comm.Recv(value.reshape(-1).view(np.uint8), 0)
                variable.assign(value)
        stages = [self._stage_of.get(id(variable)) for variable in variables]
        initialize(v for v, stage in zip(variables, stages, strict=True) if stage in {None, self.layout.stage})
        self.service.add(variables, stages)

    def _part(self) -> StagePart:
        start, end = stage_ranges(self.cuts, len(self._graph.calls))[self.layout.stage]
        calls = self._graph.calls[start:end]
        own = {id(variable) for call in calls for variable in call.variables}
        return StagePart(
            graph=self._graph,
            calls=calls,
            received=crossing_tensors(self._graph, start) if start else [],
            sent=[] if self.layout.is_last else crossing_tensors(self._graph, end),
            is_last=self.layout.is_last,
            held=held_micro_batches(self.schedule, self.layout.stages, self._micro_batches, self.layout.stage),
            trainable=[v for v in self.model.trainable_variables if id(v) in own],
            frozen=[v for v in self.model.non_trainable_variables if id(v) in own],
        )

    def _broadcast(self, variable: keras.Variable, comm: Any) -> None:
        value = np.array(variable.numpy(), order="C")
        comm.Bcast(value.reshape(-1).view(np.uint8))
        if variable.name == "seed_generator_state":
            value = value + np.array([self.layout.replica.rank, 0], value.dtype)
        variable.assign(value)

    def _announce(self) -> None:
        if world().rank == 0:
            ranges = stage_ranges(self.cuts, len(self._graph.calls))
            names = [f"{self._graph.calls[start].name} to {self._graph.calls[end - 1].name}" for start, end in ranges]
            print_line(
                f"{self.layout.stages} stages, {pluralize(self.layout.replica.size, 'replica')}, "
                f"{self._micro_batches} micro-batches ({self.schedule}): "
                + "; ".join(
                    f"stage {number} ({format_ranks(self.layout.ranks_of(number))}): {text}"
                    for number, text in enumerate(names)
                )
            )
