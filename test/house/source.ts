/**
 * What the house rules read: the files of this repository and the syntax trees of its modules. The parser is the one
 * that Vite ships.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join, relative, resolve } from "node:path"
import { assert } from "vitest"
import { parseSync } from "vite"

export const root = resolve(import.meta.dirname, "../..")

/** The TypeScript files below a folder of the repository, as sorted paths from the root. Dot folders are not ours. */
export const filesIn = (folder: string): ReadonlyArray<string> => {
  if (!existsSync(join(root, folder))) return []
  return readdirSync(join(root, folder), { withFileTypes: true })
    .filter((entry) => !entry.name.startsWith(".") && entry.name !== "node_modules")
    .flatMap((entry) => {
      const path = `${folder}/${entry.name}`
      return entry.isDirectory() ? filesIn(path) : entry.name.endsWith(".ts") ? [path] : []
    })
    .toSorted()
}

/** A file of `src` by the name that the floor table and the package exports use: `Gate`, `internal/ledger`. */
export const moduleOf = (path: string): string => path.replace(/^src\//, "").replace(/\.ts$/, "")

export const isBarrel = (path: string): boolean => path.endsWith("/index.ts")

export const isInternal = (path: string): boolean => path.split("/").includes("internal")

export const read = (path: string): string => readFileSync(join(root, path), "utf8")

type Parsed = ReturnType<typeof parseSync>
export type Statement = Parsed["program"]["body"][number]

export interface Source {
  readonly path: string
  readonly text: string
  readonly comments: Parsed["comments"]
  readonly body: ReadonlyArray<Statement>
  readonly program: Parsed["program"]
  readonly module: Parsed["module"]
}

export const parse = (path: string, text: string = read(path)): Source => {
  const { comments, errors, module, program } = parseSync(path, text)
  const error = errors[0]
  if (error !== undefined) throw new SyntaxError(`${path} cannot be parsed: ${error.message}`)
  return { path, text, comments, body: program.body, program, module }
}

export const lineAt = (text: string, offset: number): number => text.slice(0, offset).split("\n").length

export interface Import {
  readonly specifier: string
  readonly line: number
  /** Whether nothing of it is left when the types are stripped. */
  readonly typeOnly: boolean
}

/** Everything a module imports or re-exports from, static and dynamic. */
export const importsOf = (source: Source): ReadonlyArray<Import> => {
  const found: Array<Import> = []
  const add = (specifier: string, offset: number, typeOnly: boolean) =>
    found.push({ specifier, line: lineAt(source.text, offset), typeOnly })
  for (const { entries, moduleRequest, start } of source.module.staticImports) {
    add(moduleRequest.value, start, entries.length > 0 && entries.every((entry) => entry.isType))
  }
  for (const { entries, start } of source.module.staticExports) {
    const from = entries.find((entry) => entry.moduleRequest !== null)?.moduleRequest
    if (from)
      add(
        from.value,
        start,
        entries.every((entry) => entry.isType)
      )
  }
  for (const { moduleRequest, start } of source.module.dynamicImports) {
    add(source.text.slice(moduleRequest.start, moduleRequest.end).replace(/^["'`]|["'`]$/g, ""), start, false)
  }
  // `import("x").T` in a type position is not in the module record.
  walk(source.program, (node) => {
    if (node.type === "TSImportType" && isNode(node.source)) add(String(node.source.value), node.start, true)
  })
  return found
}

/** The repository path that a relative specifier means. */
export const resolveFrom = (path: string, specifier: string): string =>
  relative(root, resolve(root, dirname(path), specifier)).replaceAll("\\", "/")

interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [key: string]: unknown
}

const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && "type" in value && typeof value.type === "string"

/** Visits every node of a syntax tree, parents first. */
export const walk = (value: unknown, visit: (node: Node) => void): void => {
  if (Array.isArray(value)) for (const item of value) walk(item, visit)
  else if (isNode(value)) {
    visit(value)
    for (const key of Object.keys(value)) if (key !== "parent") walk(value[key], visit)
  }
}

/** The text with some ranges turned into spaces; line breaks stay, so that lines keep their numbers. */
const without = (text: string, ranges: ReadonlyArray<{ readonly start: number; readonly end: number }>): string => {
  let result = ""
  let at = 0
  for (const { end, start } of ranges.toSorted((a, b) => a.start - b.start)) {
    if (start < at) continue
    result += text.slice(at, start) + text.slice(start, end).replace(/[^\n]/g, " ")
    at = end
  }
  return result + text.slice(at)
}

/** Code without comments. */
export const withoutComments = (source: Source): string => without(source.text, source.comments)

/** Code without comments and without the inside of strings, templates and regular expressions. */
export const codeOnly = (source: Source): string => {
  const ranges = source.comments.map(({ end, start }) => ({ start, end }))
  walk(source.program, (node) => {
    if ((node.type === "Literal" && node.end - node.start > 1) || node.type === "TemplateElement") ranges.push(node)
  })
  return without(source.text, ranges)
}

/** Fails with the violations, each on its own line, at most forty: nobody reads more before mending some. */
export const assertNone = (violations: ReadonlyArray<string>): void => {
  if (violations.length === 0) return
  assert.fail(`${violations.length} violation(s)\n  ${violations.slice(0, 40).join("\n  ")}`)
}
