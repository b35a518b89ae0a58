/** The floors of the house: who may import whom. The table below is the rule; the tests only compare. */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "vitest"
import { assertNone, filesIn, importsOf, isBarrel, moduleOf, parse, read, resolveFrom, root } from "./source.ts"

interface Row {
  readonly floor: string
  /** Module names, or `folder/*` for everything below a folder. */
  readonly rooms: ReadonlyArray<string>
  /** Whether it must run without effect, or any package at all. */
  readonly pure?: true
}

/**
 * From the ground up. A module imports strictly lower rows. The modules of one row do not know each other, except those
 * that share a `folder/*`. A floor has several rows where a concept stands on its own internals.
 */
const rows: ReadonlyArray<Row> = [
  {
    floor: "0 words",
    rooms: ["internal/number", "internal/hash", "internal/canonicalJson"],
    pure: true
  },
  {
    floor: "0 words",
    rooms: ["internal/duration", "internal/errorKind"]
  },
  {
    floor: "0 words",
    rooms: ["Priority", "Deadline", "Spend", "Ancestry", "Outcome", "Limit", "Rate", "internal/schemaIssue"]
  },
  { floor: "0 words", rooms: ["Rejected", "GaveUp", "Event"] },
  { floor: "0 words", rooms: ["Report"] },
  {
    floor: "1 arithmetic",
    rooms: [
      "internal/ledger",
      "internal/tokenBucket",
      "internal/fairQueue",
      "internal/dueHeap",
      "internal/adaptiveLimit",
      "internal/breakerState",
      "internal/retryDeposits",
      "internal/pressure",
      "internal/ladderState",
      "internal/restartIntensity",
      "internal/retryAfter",
      "internal/lineOrder",
      "internal/commonFailure",
      "internal/attempts"
    ],
    pure: true
  },
  { floor: "1 arithmetic", rooms: ["internal/gateMachine"], pure: true },
  // The envelope carries the counters of its task, and those are made of arithmetic.
  { floor: "0 words", rooms: ["internal/recorder"] },
  { floor: "0 words", rooms: ["internal/envelope"] },
  { floor: "0 words", rooms: ["Envelope"] },
  { floor: "2 governors", rooms: ["internal/alarm", "internal/holding", "internal/currentTry", "Fault"] },
  { floor: "2 governors", rooms: ["Budget", "Gate", "Breaker", "RetryBudget", "Ladder"] },
  { floor: "2 governors", rooms: ["Retry"] },
  { floor: "3 one call", rooms: ["internal/call"] },
  { floor: "3 one call", rooms: ["Dependency"] },
  { floor: "4 care", rooms: ["Store"] },
  { floor: "4 care", rooms: ["Supervisor", "DeadLetters", "Deferred", "Recovery"] },
  { floor: "5 the tree", rooms: ["internal/tree/*"] },
  { floor: "5 the tree", rooms: ["Agent", "Policy", "Calibration"] },
  { floor: "5 the tree", rooms: ["Fleet"] },
  { floor: "6 doors", rooms: ["ai/*", "http/*", "promise/*", "cluster/*"] },
  { floor: "7 windows", rooms: ["telemetry/*", "dashboard/*", "cli/*"] },
  { floor: "beside", rooms: ["testing/*"] },
  { floor: "beside", rooms: ["simulation/*"] }
]

/** The floors that everybody runs: they stand on the stable modules of effect and on nothing else. */
const core = new Set(["0 words", "1 arithmetic", "2 governors", "3 one call", "4 care", "5 the tree"])

interface Place {
  readonly row: Row
  readonly height: number
  readonly room: string
}

const placeOf = (module: string): Place | undefined => {
  for (const [height, row] of rows.entries()) {
    const room = row.rooms.find((room) =>
      room.endsWith("/*") ? module.startsWith(room.slice(0, -1)) : module === room
    )
    if (room !== undefined) return { row, height, room }
  }
  return undefined
}

const files = filesIn("src").filter((path) => !isBarrel(path))
const imports = new Map(files.map((path) => [path, importsOf(parse(path))]))
const isRelative = (specifier: string) => specifier.startsWith(".")

const edges = files.flatMap((from) =>
  (imports.get(from) ?? [])
    .filter(({ specifier }) => isRelative(specifier))
    .map((found) => ({ ...found, from, to: resolveFrom(from, found.specifier) }))
)
const packages = files.flatMap((from) =>
  (imports.get(from) ?? []).filter(({ specifier }) => !isRelative(specifier)).map((found) => ({ ...found, from }))
)

describe("floors", () => {
  it("every module has a room, and no room is given twice", () => {
    assertNone(
      files
        .filter((path) => placeOf(moduleOf(path)) === undefined)
        .map((path) => `${path} has no room: choose one for it in the table of test/house/floors.test.ts`)
    )
    const rooms = rows.flatMap((row) => row.rooms)
    assert.strictEqual(new Set(rooms).size, rooms.length, "a module stands in two rows of the table")
  })

  it("imports point strictly down, and neighbours do not know each other", () => {
    const violations: Array<string> = []
    for (const { from, line, to } of edges) {
      if (isBarrel(to)) violations.push(`${from}:${line} imports the barrel ${to}; import the module itself`)
      const above = placeOf(moduleOf(from))
      const below = placeOf(moduleOf(to))
      if (above === undefined || below === undefined) continue
      if (above.height > below.height || (above.room === below.room && above.room.endsWith("/*"))) continue
      const names = `${from}:${line} (${above.row.floor}) imports ${to} (${below.row.floor})`
      violations.push(
        above.height === below.height
          ? `${names}, its neighbour; hand the value over from the row above, or give the shared part a row below both`
          : `${names}, which stands above it; turn the dependency round, or move the shared part down`
      )
    }
    assertNone(violations)
  })

  it("no module imports itself, directly or through others", () => {
    const targets = Map.groupBy(edges, ({ from }) => from)
    const done = new Set<string>()
    const violations: Array<string> = []
    const visit = (path: string, trail: ReadonlyArray<string>): void => {
      const seen = trail.indexOf(path)
      if (seen >= 0) violations.push([...trail.slice(seen), path].join(" -> "))
      if (seen >= 0 || done.has(path)) return
      for (const { to } of targets.get(path) ?? []) visit(to, [...trail, path])
      done.add(path)
    }
    for (const path of files) visit(path, [])
    assertNone(violations)
  })

  it("an internal folder is open only to the folder that holds it", () => {
    assertNone(
      edges
        .filter(({ from, to }) => {
          const owner = to.slice(0, to.lastIndexOf("internal/"))
          return to.includes("/internal/") && !from.startsWith(owner)
        })
        .map(({ from, line, to }) => `${from}:${line} imports ${to}, a private part; use what its folder makes public`)
    )
  })

  it("the pure modules run without effect and without any package", () => {
    const violations: Array<string> = []
    for (const start of files.filter((path) => placeOf(moduleOf(path))?.row.pure === true)) {
      const seen = new Set<string>()
      const visit = (path: string, trail: string): void => {
        if (seen.has(path)) return
        seen.add(path)
        for (const found of imports.get(path) ?? []) {
          // A type of a word is welcome; what runs is not. In the pure module itself a package is not even a type.
          if (isRelative(found.specifier)) {
            const to = resolveFrom(path, found.specifier)
            if (!found.typeOnly) visit(to, `${trail} -> ${to}`)
          } else if (!found.typeOnly || path === start) {
            violations.push(
              `${trail}:${found.line} imports ${found.specifier}; take the value, the time, the number as an argument`
            )
          }
        }
      }
      visit(start, start)
    }
    assertNone(violations)
  })

  it("the core imports stable modules of effect and nothing else", () => {
    const stability = (module: string): string | undefined => {
      const path = join("node_modules/effect/dist", `${module}.d.ts`)
      if (!existsSync(join(root, path))) return "missing"
      const text = read(path)
      return /@stability (\w+)/.exec(text.slice(0, text.indexOf("*/")))?.[1]
    }
    assertNone(
      packages.flatMap(({ from, line, specifier }) => {
        const floor = placeOf(moduleOf(from))?.row.floor
        if (floor === undefined || !core.has(floor)) return []
        const module = /^effect\/([A-Z]\w*)$/.exec(specifier)?.[1]
        if (module === undefined) {
          return [
            `${from}:${line} imports ${specifier}; the core imports "effect/Module" only, move what needs more to a door or a window`
          ]
        }
        const state = stability(module)
        return state === "stable"
          ? []
          : [`${from}:${line} imports ${specifier}, which effect calls ${state}; use a stable module`]
      })
    )
  })

  it("every file imports modules of effect, and only packages that a user has", () => {
    const manifest: { dependencies?: Record<string, string>; peerDependencies?: Record<string, string> } = JSON.parse(
      read("package.json")
    )
    const installed = new Set(Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies }))
    assertNone(
      packages.flatMap(({ from, line, specifier }) => {
        if (specifier === "effect") return [`${from}:${line} imports the barrel of effect; import "effect/Module"`]
        if (specifier.startsWith("node:")) return []
        const name = specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/")
        return installed.has(name)
          ? []
          : [`${from}:${line} imports ${specifier}, which package.json does not give to users`]
      })
    )
  })
})
