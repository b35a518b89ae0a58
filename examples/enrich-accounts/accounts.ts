/** The accounts: rows of a CSV, checked before anything starts. */
import { Data, Effect, Schema } from "effect"
import { CsvError, parse } from "csv-parse/sync"
import { readFile } from "node:fs/promises"

export const Account = Schema.Struct({
  symbol: Schema.NonEmptyString,
  name: Schema.NonEmptyString,
  sector: Schema.NonEmptyString,
  industry: Schema.NonEmptyString,
  location: Schema.NonEmptyString
})
export type Account = typeof Account.Type

export class AccountsError extends Data.TaggedError("AccountsError")<{ readonly message: string }> {}

const columns = {
  Symbol: "symbol",
  Security: "name",
  "GICS Sector": "sector",
  "GICS Sub-Industry": "industry",
  "Headquarters Location": "location"
} as const

const decode = Schema.decodeUnknownResult(Account)

/** The first `count` accounts of a CSV file; a malformed one is named by file, line and column. */
export const load = (path: string, count: number): Effect.Effect<ReadonlyArray<Account>, AccountsError> =>
  Effect.gen(function* () {
    const fail = (message: string) => new AccountsError({ message: `${path}: ${message}` })
    const text = yield* Effect.tryPromise({ try: () => readFile(path, "utf8"), catch: () => fail("cannot be read") })
    const rows = yield* Effect.try({
      try: () => parse(text, { columns: true, bom: true, skip_empty_lines: true, info: true }) as ReadonlyArray<Row>,
      catch: (error) =>
        fail(
          error instanceof CsvError ? `line ${String(error["lines"] ?? "?")}: ${error.message}` : "is not a CSV file"
        )
    })
    const missing = Object.keys(columns).filter((column) => !(column in (rows[0]?.record ?? {})))
    if (missing.length > 0) return yield* fail(`line 1: the column ${missing.join(", ")} is missing`)
    const accounts: Array<Account> = []
    const seen = new Set<string>()
    for (const { record, info } of rows.slice(0, count)) {
      const renamed = Object.fromEntries(Object.entries(columns).map(([from, to]) => [to, record[from]]))
      const account = decode(renamed)
      if (account._tag === "Failure") {
        const empty = Object.keys(columns).find((column) => !record[column])
        return yield* fail(`line ${info.lines}: the column ${empty ?? "?"} is empty`)
      }
      const { symbol } = account.success
      // The report knows accounts by their symbol; one that came twice would be counted once.
      if (seen.has(symbol)) return yield* fail(`line ${info.lines}: the column Symbol has ${symbol} a second time`)
      seen.add(symbol)
      accounts.push(account.success)
    }
    if (accounts.length < count) return yield* fail(`holds ${accounts.length} accounts, ${count} were asked for`)
    return accounts
  })

interface Row {
  readonly record: Readonly<Record<string, string>>
  readonly info: { readonly lines: number }
}
