/**
 * Names what failed without quoting it.
 *
 * @internal
 */
import * as Cause from "effect/Cause"
import * as Exit from "effect/Exit"

/** The kind of an error by its name; its message may hold anything. */
export const kindOf = (exit: Exit.Exit<unknown, unknown>): string => {
  if (Exit.isSuccess(exit)) return "Success"
  const error = Cause.findErrorOption(exit.cause)
  if (error._tag === "None") return "Defect"
  const value: unknown = error.value
  if (typeof value !== "object" || value === null) return typeof value
  return "_tag" in value && typeof value._tag === "string" ? value._tag : value.constructor.name
}
