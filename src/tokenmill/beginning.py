"""Recipe and plan of an unfinished run: written by whoever begins it, compared with by everybody who goes on."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tokenmill import __version__
from tokenmill.errors import OutputError
from tokenmill.inputs import identities, refuse_other_inputs
from tokenmill.layout import PLAN, RECIPE, WORK, output_files
from tokenmill.lock import guarded
from tokenmill.manifest import SKIPPED, SUMS
from tokenmill.plan import Plan, plan_units
from tokenmill.recipe import Recipe
from tokenmill.segments import QUARANTINE
from tokenmill.shards.index import INDEX
from tokenmill.sources import Input
from tokenmill.storage.addresses import Address
from tokenmill.storage.local import write_first

T = TypeVar("T")


class PlanRecord(msgspec.Struct, frozen=True):
    """What a plan depends on, to make it again and to see that it is the same."""

    tokenmill: str
    unit_bytes: int
    n_units: int
    digest: str
    inputs: tuple[Input, ...]


def begin(out: Path, recipe: Recipe, plan: Plan) -> None:
    """Make the folder this recipe's, if nothing of somebody else's is in the way."""
    strangers = [
        *output_files(out, recipe),
        *(path for path in (out / SUMS, out / SKIPPED, out / INDEX, out / QUARANTINE) if path.exists()),
    ]
    if strangers:
        raise OutputError(
            f"`{out}` holds `{strangers[0].name}`, which tokenmill did not make and would overwrite",
            hint="pass another folder with `-o`, or move it away",
        )
    write_first(out / WORK / RECIPE, msgspec.json.encode(recipe), "recipe")
    write_first(out / WORK / PLAN, msgspec.json.encode(plan_record(plan)), "plan")


def joined(out: Path, recipe: Recipe, plan: Plan) -> Plan:
    """Begin the run of this recipe, or join others who have, and return its plan.

    Any number of processes may do that at the same moment, whether the file system has locks or not: of recipe and
    plan the first ones stay, and everybody compares with those.
    """
    with guarded(out / WORK):
        if not (out / WORK / RECIPE).exists():
            begin(out, recipe, plan)
        return taken_up(out, recipe, plan)


def taken_up(out: Path, recipe: Recipe, plan: Plan) -> Plan:
    """Check that the run in this folder is ours to go on with, and return its plan."""
    work = out / WORK
    refuse_other_recipe(out, damaged_or(work / RECIPE, Recipe), recipe)
    if not (work / PLAN).exists():  # killed at the very beginning
        write_first(work / PLAN, msgspec.json.encode(plan_record(plan)), "plan")
    record = damaged_or(work / PLAN, PlanRecord)
    refuse_other_inputs(out, identities(record.inputs), identities(plan.inputs))
    if record.unit_bytes != plan.unit_bytes:
        plan = plan_units(recipe, record.unit_bytes)
    if plan_record(plan).digest != record.digest:
        raise OutputError(
            f"`{out}` was begun by tokenmill {record.tokenmill}, which cut the inputs in another way than"
            f" {__version__} does",
            hint=f"finish it with tokenmill {record.tokenmill}, or delete it",
        )
    return plan


def plan_record(plan: Plan) -> PlanRecord:
    digest = hashlib.sha256(msgspec.json.encode(plan.units)).hexdigest()
    return PlanRecord(__version__, plan.unit_bytes, len(plan.units), digest, plan.inputs)


def refuse_other_recipe(out: Path | Address, earlier: Recipe, recipe: Recipe) -> None:
    if earlier == recipe:
        return
    differences = [
        f"  {field.name}: {shown(getattr(earlier, field.name))} there, {shown(getattr(recipe, field.name))} now"
        for field in msgspec.structs.fields(Recipe)
        if getattr(earlier, field.name) != getattr(recipe, field.name)
    ]
    raise OutputError(
        "\n".join([f"`{out}` holds the output of another recipe", *differences]),
        hint="pass another folder with `-o`, or delete this one",
    )


def damaged_or(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.MsgspecError as error:
        raise OutputError(f"`{path}` is damaged: {error}", hint=f"delete `{path.parent.parent}`") from None


def shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value[:3]) + (" ..." if len(value) > 3 else "")
    return f"`{value}`"
