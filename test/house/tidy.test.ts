/** Sizes, words and places. Each message names what to use instead. */
import { readdirSync } from "node:fs"
import { basename } from "node:path"
import { describe, it } from "vitest"
import {
  assertNone,
  codeOnly,
  filesIn,
  isBarrel,
  lineAt,
  parse,
  read,
  root,
  type Source,
  withoutComments
} from "./source.ts"

const maxCodeLines = 400

interface Banned {
  readonly pattern: RegExp
  readonly instead: string
}

const clock = "effect/Clock (Deadline.now for the monotonic instant); pure code takes nowMillis as an argument"
const timer = "Effect.sleep, Effect.timeout or a Schedule; internal/alarm where many things are due"

const bannedInCode: ReadonlyArray<Banned> = [
  { pattern: /\bDate\s*\.\s*now\b/g, instead: clock },
  { pattern: /\bnew\s+Date\s*\(\s*\)/g, instead: clock },
  { pattern: /\bperformance\s*\.\s*now\b/g, instead: clock },
  { pattern: /\bset(?:Timeout|Interval)\b/g, instead: timer },
  { pattern: /\bMath\s*\.\s*random\b/g, instead: "effect/Random; pure code takes the number as an argument" },
  { pattern: /\bas\s+any\b/g, instead: "the precise type, or unknown and a Schema or a type guard" }
]

const bannedInComments: ReadonlyArray<Banned> = [
  { pattern: /@ts-(?:ignore|expect-error|nocheck)\b/g, instead: "types that hold" },
  { pattern: /\b(?:TODO|FIXME)\b/g, instead: "do it now, or file an issue" }
]

const bannedInTests: ReadonlyArray<Banned> = [
  {
    pattern: /\b(?:it|test|describe|suite)(?:\.\w+)*\.(?:skip|only)\b/g,
    instead: "run every test; delete one that says nothing, it.skipIf where a machine lacks something"
  }
]

const bannedNames = /^(?:utils?|commons?|helpers?|types?|managers?|misc|shared)$/i

const find = (source: Source, text: string, banned: ReadonlyArray<Banned>): ReadonlyArray<string> =>
  banned.flatMap(({ instead, pattern }) =>
    Array.from(text.matchAll(pattern), (match) => {
      return `${source.path}:${lineAt(text, match.index)} has ${match[0]}; instead: ${instead}`
    })
  )

const sources = filesIn("src").map((path) => parse(path))
const tests = filesIn("test").map((path) => parse(path))

describe("tidy", () => {
  it(`no module has more than ${maxCodeLines} lines of code`, () => {
    assertNone(
      sources
        .filter(({ path }) => !isBarrel(path))
        .map((source) => ({
          path: source.path,
          lines: withoutComments(source)
            .split("\n")
            .filter((line) => line.trim() !== "").length
        }))
        .filter(({ lines }) => lines > maxCodeLines)
        .map(({ lines, path }) => `${path} has ${lines} lines of code; split it by noun, one concept per module`)
    )
  })

  it("src has no banned words in its code", () => {
    assertNone(sources.flatMap((source) => find(source, codeOnly(source), bannedInCode)))
  })

  it("src has no banned words in its comments", () => {
    assertNone(
      sources.flatMap((source) =>
        source.comments.flatMap(({ end, start }) => {
          const upTo = source.text.slice(0, start).replace(/[^\n]/g, " ") + source.text.slice(start, end)
          return find(source, upTo, bannedInComments)
        })
      )
    )
  })

  it("no test is skipped or runs alone", () => {
    assertNone(tests.flatMap((source) => find(source, codeOnly(source), bannedInTests)))
  })

  it("file names say what is inside", () => {
    assertNone(
      [...filesIn("src"), ...filesIn("test"), ...filesIn("examples")]
        .filter((path) => path.split("/").some((part) => bannedNames.test(basename(part).replace(/\..*$/, ""))))
        .map((path) => `${path} has a name that says nothing; name it after the one concept it holds`)
    )
  })

  it("the top level holds only what has a ruling", () => {
    const allowed = new Set([
      "src",
      "test",
      "examples",
      "docs",
      "package.json",
      "package-lock.json",
      "tsconfig.json",
      "vitest.config.ts",
      "README.md",
      "LICENSE",
      "CHANGELOG.md"
    ])
    const ignored = read(".gitignore")
      .split("\n")
      .map((line) => line.trim().replace(/\/$/, ""))
      .filter((line) => line !== "")
    const isIgnored = (name: string) =>
      ignored.some((pattern) => (pattern.startsWith("*") ? name.endsWith(pattern.slice(1)) : name === pattern))
    assertNone(
      readdirSync(root)
        .filter((name) => !name.startsWith(".") && !allowed.has(name) && !isIgnored(name))
        .map(
          (name) => `${name} stands at the top level; settings go to .config, the rest to src, test, examples or docs`
        )
    )
  })
})
