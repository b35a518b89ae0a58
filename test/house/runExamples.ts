/**
 * Runs the modules that its arguments name, one after the other in one process, and writes what each printed to the file
 * that the first argument names. `docs.test.ts` starts it; it is no test of its own.
 */
import { writeFileSync } from "node:fs"
import { pathToFileURL } from "node:url"
import { formatWithOptions, stripVTControlCharacters } from "node:util"

export interface Run {
  readonly printed: ReadonlyArray<string>
  readonly error?: string
}

const maxMillis = 15_000
const [report = "", ...modules] = process.argv.slice(2)
const runs: Record<string, Run> = {}
let printed: Array<string> = []
let errors: Array<string> = []

/** The lines of effect's own loggers, which carry the time of day. */
const isLog = (line: string) => /^(?:\[\d\d:\d\d:\d\d\.\d{3}\] |timestamp=)/.test(line)

const print = (...values: ReadonlyArray<unknown>): void => {
  const line = stripVTControlCharacters(formatWithOptions({ breakLength: Infinity }, ...values))
  if (!isLog(line)) printed.push(line.replace(/\s*\n\s*/g, " ").trim())
}
console.log = print
console.info = print
const exit = process.exit.bind(process)
process.exit = () => {
  throw new Error("it calls process.exit, and the blocks after it could not run")
}
process.on("uncaughtException", (error) => errors.push(error.stack ?? String(error)))
process.on("unhandledRejection", (error) => errors.push(String(error)))

for (const module of modules) {
  const lines: Array<string> = []
  printed = lines
  errors = []
  // Written before as well, so that a module that ends the process is the one that is named.
  runs[module] = { printed: lines, error: "it ended the process" }
  writeFileSync(report, JSON.stringify(runs))
  const { promise, resolve } = Promise.withResolvers<string>()
  const timer = setTimeout(resolve, maxMillis, `it was not done after ${maxMillis} ms`)
  // What a module starts and does not await is given a turn to print.
  const done = import(pathToFileURL(module).href).then(() => new Promise<undefined>((next) => setTimeout(next, 5)))
  const late = await Promise.race([promise, done]).catch((error: unknown) =>
    error instanceof Error ? (error.stack ?? error.message) : String(error)
  )
  clearTimeout(timer)
  const error = late ?? errors[0]
  runs[module] = error === undefined ? { printed: lines } : { printed: lines, error }
}
writeFileSync(report, JSON.stringify(runs))
exit(0)
