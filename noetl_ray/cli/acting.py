"""Acting on an execution: cancel, pause, resume, answer, rerun. Each is a request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from noetl_ray.cli.context import COMPLETED, ask
from noetl_ray.errors import UsageError

if TYPE_CHECKING:
    from noetl_ray.cli.context import Context


def cancel(context: Context) -> int:
    """Ask an execution to stop."""
    args = context.args
    ask(context, lambda client: client.cancel(args.id, args.reason, cascade=not args.no_cascade))
    if context.json:
        context.emit({"execution_id": str(args.id), "status": "cancel requested"})
    else:
        context.say(f"execution {args.id} was asked to stop; see: noetl-ray status {args.id}")
    return COMPLETED


def pause(context: Context) -> int:
    """Ask that nothing new begins."""
    args = context.args
    ask(context, lambda client: client.pause(args.id, args.reason))
    if context.json:
        context.emit({"execution_id": str(args.id), "status": "pause requested"})
    else:
        context.say(
            f"execution {args.id} begins nothing new; what runs finishes. "
            f"Go on with: noetl-ray resume {args.id}"
        )
    return COMPLETED


def resume(context: Context) -> int:
    """Let it go on."""
    args = context.args
    ask(context, lambda client: client.resume(args.id))
    if context.json:
        context.emit({"execution_id": str(args.id), "status": "resume requested"})
    else:
        context.say(f"execution {args.id} goes on; see: noetl-ray status {args.id}")
    return COMPLETED


def answer(context: Context) -> int:
    """Answer a callback by its step."""
    args = context.args
    text = args.data if args.data_file is None else args.data_file.read_text()
    try:
        data = json.loads(text) if text else {}
    except ValueError as error:
        msg = f"the answer is not JSON: {error}"
        raise UsageError(msg) from None
    fresh = ask(context, lambda client: client.answer(args.id, args.step, data, index=args.index))
    if context.json:
        status = "accepted" if fresh else "duplicate"
        context.emit({"execution_id": str(args.id), "step": args.step, "status": status})
    elif fresh:
        context.say(f"step {args.step} of execution {args.id} goes on")
    else:
        context.say(f"step {args.step} of execution {args.id} had this answer before")
    return COMPLETED


def rerun(context: Context) -> int:
    """Run again; the answer is the new id."""
    args = context.args
    step = args.from_step
    new = ask(context, lambda client: client.rerun(args.id, from_step=step)).execution_id
    if context.json:
        context.emit({"execution_id": str(new)})
    else:
        context.out.print(str(new), highlight=False)
        context.say(f"follow it with: noetl-ray status {new}")
    return COMPLETED
