/**
 * How a node ends, and what its cause says.
 *
 * @internal
 */
import * as Cause from "effect/Cause"
import * as Exit from "effect/Exit"
import * as GaveUp from "../../GaveUp.ts"
import * as Rejected from "../../Rejected.ts"

/** How a node ended, with what it ended with. */
export type NodeExit =
  | { readonly _tag: "Completed"; readonly output: unknown }
  | { readonly _tag: "Partial"; readonly output: unknown; readonly reason: string }
  | { readonly _tag: "Failed"; readonly cause: Cause.Cause<unknown>; readonly reason: string }
  | { readonly _tag: "Interrupted"; readonly reason: string }
  | { readonly _tag: "Rejected"; readonly rejected: Rejected.Rejected; readonly reason: string }
  | { readonly _tag: "Expired"; readonly reason: string }

/** Why a node was told to stop. */
export type Stop = "Interrupted" | "Expired" | "CutOff"
const stopReasons: Record<Stop, string> = {
  Interrupted: "stopped from above",
  Expired: "its deadline passed",
  CutOff: "cut off when the grace of the shutdown ended"
}

const errorOf = (cause: Cause.Cause<unknown>): unknown => {
  const error = Cause.findErrorOption(cause)
  return error._tag === "Some" ? error.value : undefined
}

/**
 * A fault is what running again may mend: not a refusal, not an interruption, not the end of time or money, and not an
 * error that says of itself that it is not retryable.
 */
export const isFault = (cause: Cause.Cause<unknown>): boolean => {
  if (Cause.hasInterruptsOnly(cause)) return false
  const error = errorOf(cause)
  if (Rejected.isRejected(error)) return false
  if (typeof error === "object" && error !== null && "isRetryable" in error && error.isRetryable === false) return false
  return !(GaveUp.isGaveUp(error) && (error.reason._tag === "Expired" || error.reason._tag === "Stopped"))
}

export const timedOut = (cause: Cause.Cause<unknown>): boolean => {
  const error = errorOf(cause)
  return GaveUp.isGaveUp(error) && error.reason._tag === "TimedOut"
}

/** Whether an error says that time or budget ran out. */
export const isSpent = (error: unknown): boolean =>
  Rejected.isRejected(error)
    ? error.reason._tag === "BudgetExceeded" || error.reason._tag === "DeadlineExceeded"
    : GaveUp.isGaveUp(error) && error.reason._tag === "Expired"

const ranOut = (cause: Cause.Cause<unknown>): boolean => isSpent(errorOf(cause))

/** Names what failed without quoting it: an error's own message may hold a prompt or a key. */
const reasonOf = (cause: Cause.Cause<unknown>): string => {
  const failure = cause.reasons.find((reason) => reason._tag !== "Interrupt")
  if (failure === undefined) return "interrupted"
  const value: unknown = failure._tag === "Fail" ? failure.error : failure.defect
  if (Rejected.isRejected(value)) return Rejected.describe(value.reason)
  if (GaveUp.isGaveUp(value)) return value.message
  const name =
    typeof value === "object" && value !== null && "_tag" in value && typeof value._tag === "string"
      ? value._tag
      : value instanceof Error
        ? value.name
        : typeof value
  return failure._tag === "Fail" ? name : `defect: ${name}`
}

/** What the end of a node is to whoever joins it. */
export const joined = (name: string, exit: NodeExit): Exit.Exit<unknown, unknown> => {
  switch (exit._tag) {
    case "Completed":
    case "Partial":
      return Exit.succeed(exit.output)
    case "Failed":
      return Exit.failCause(exit.cause)
    case "Rejected":
      return Exit.fail(exit.rejected)
    case "Expired":
      return Exit.fail(GaveUp.make({ _tag: "Expired", agent: name }))
    case "Interrupted":
      return Exit.fail(GaveUp.make({ _tag: "Stopped", agent: name, why: exit.reason }))
  }
}

/** How a node ends: from the exit of its last run, why it was stopped, and what it had published. */
export const exitOf = (
  run: Exit.Exit<unknown, unknown> | undefined,
  stop: Stop | undefined,
  partial: { readonly value: unknown } | undefined
): NodeExit => {
  if (run !== undefined && Exit.isSuccess(run) && stop !== "Expired") return { _tag: "Completed", output: run.value }
  if (stop !== undefined) {
    const reason = stopReasons[stop]
    if (partial !== undefined) return { _tag: "Partial", output: partial.value, reason }
    return stop === "Expired" ? { _tag: "Expired", reason } : { _tag: "Interrupted", reason }
  }
  if (run === undefined || Exit.isSuccess(run)) return { _tag: "Interrupted", reason: "never started" }
  if (Cause.hasInterruptsOnly(run.cause)) {
    const reason = "interrupted itself"
    return partial === undefined ? { _tag: "Interrupted", reason } : { _tag: "Partial", output: partial.value, reason }
  }
  const reason = reasonOf(run.cause)
  if (partial !== undefined && ranOut(run.cause)) return { _tag: "Partial", output: partial.value, reason }
  return { _tag: "Failed", cause: run.cause, reason }
}

/** What a child ends with when its supervisor gives it up; the last failure goes along. */
export const gaveUp = (
  exceeded: "intensity" | "attempts",
  agent: string,
  restarts: number,
  group: { readonly intensity: number; readonly periodMillis: number },
  last: Exit.Exit<unknown, unknown>
): Exit.Exit<never, GaveUp.GaveUp> =>
  Exit.fail(
    GaveUp.make(
      exceeded === "attempts"
        ? { _tag: "RetriesExhausted", agent, attempts: restarts + 1 }
        : { _tag: "RestartIntensityExceeded", agent, restarts: group.intensity, periodMillis: group.periodMillis },
      Exit.isFailure(last) ? last.cause : undefined
    )
  )
