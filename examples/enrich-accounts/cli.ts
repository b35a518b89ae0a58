/** How the command line is read and what it says when it is wrong: one line that names flag, value and rule. */
import { Console, Effect } from "effect"
import { CliOutput } from "effect/cli"

const takesValue = new Set(
  "accounts tokens usd depth deadline priority seed port file provider model price-in price-out"
    .split(" ")
    .map((name) => `--${name}`)
)

/** Joins a flag and its value, so that a value that begins with a dash is read as a value and refused as one. */
export const join = (args: ReadonlyArray<string>): ReadonlyArray<string> => {
  const joined: Array<string> = []
  for (let at = 0; at < args.length; at++) {
    const arg = args[at]!
    const value = args[at + 1]
    if (takesValue.has(arg) && value !== undefined && !value.startsWith("--")) {
      joined.push(`${arg}=${value}`)
      at++
    } else joined.push(arg)
  }
  return joined
}

const oneLine = (message: string): string =>
  message.replace(/Expected: Schema validation failed: (?:Expected )?/, "Expected: ").replaceAll("\n", " ")

/** Errors go to standard error, a line each; help is for those who ask for it. */
export const presenter = CliOutput.layerPresenter({
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? Effect.forEach(
          event.errors,
          ({ message }) => Console.error(`enrich-accounts: ${oneLine(message)}; --help lists the flags`),
          { discard: true }
        )
      : CliOutput.defaultPresenter.present(event)
})
