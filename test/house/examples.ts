/**
 * The code that README and doc comments show, as modules that can be checked and run.
 *
 * A block is a module. `console.log(…) // => value` says which line it prints; a comment `// => value` on a line of its
 * own says the next one. A block marked "ts ignore-run" is only type-checked.
 */
import { existsSync, mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { filesIn, isBarrel, isInternal, parse, read, root } from "./source.ts"

export interface Expected {
  /** The line in the file that shows the block. */
  readonly line: number
  readonly value: string
}

export interface Block {
  readonly path: string
  /** The line of the block's first line of code. */
  readonly line: number
  readonly code: string
  readonly runs: boolean
  readonly expected: ReadonlyArray<Expected>
}

/** The fenced blocks of a text whose first line is line `firstLine` of `path`. */
export const blocksOf = (path: string, text: string, firstLine: number = 1): ReadonlyArray<Block> => {
  const blocks: Array<Block> = []
  const lines = text.split("\n")
  for (let at = 0; at < lines.length; at++) {
    const fence = /^(\s*)(`{3,})(\S*)\s*(.*)$/.exec(lines[at] ?? "")
    if (fence === null) continue
    const [, indent = "", ticks = "", language, marks = ""] = fence
    const start = at + 1
    const end = lines.findIndex((line, index) => index >= start && line.trim() === ticks)
    if (end < 0) throw new SyntaxError(`${path}:${firstLine + at} opens a code block that nothing closes`)
    at = end
    if (language !== "ts") continue
    const code = lines.slice(start, end).map((line) => (line.startsWith(indent) ? line.slice(indent.length) : line))
    const expected = code.flatMap((line, index) => {
      const value = /\/\/ => (.*)$/.exec(line)?.[1]
      return value === undefined ? [] : [{ line: firstLine + start + index, value: value.trim() }]
    })
    const runs = expected.length > 0 && !marks.split(/\s+/).includes("ignore-run")
    blocks.push({ path, line: firstLine + start, code: code.join("\n"), runs, expected })
  }
  return blocks
}

/** Every block of README.md and of the doc comments of public modules. */
export const collect = (): ReadonlyArray<Block> => [
  ...(existsSync(join(root, "README.md")) ? blocksOf("README.md", read("README.md")) : []),
  ...filesIn("src")
    .filter((path) => !isInternal(path) && !isBarrel(path))
    .flatMap((path) => {
      const { comments, text } = parse(path)
      return comments
        .filter(({ value }) => value.startsWith("*"))
        .flatMap(({ start, value }) =>
          blocksOf(path, value.replace(/^[ \t]*\* ?/gm, ""), text.slice(0, start).split("\n").length)
        )
    })
]

/** Writes each block as a module of its own into `folder`, with the settings that check them. */
export const write = (folder: string, blocks: ReadonlyArray<Block>): void => {
  mkdirSync(folder, { recursive: true })
  for (const [index, block] of blocks.entries()) {
    writeFileSync(join(folder, `${index}.ts`), `${block.code}\nexport {}\n`)
  }
  const settings = {
    extends: join(root, "tsconfig.json"),
    // An example may name a value that it does not use.
    compilerOptions: { noUnusedLocals: false },
    include: [`${folder}/*.ts`]
  }
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(settings))
}
