/** What a user can reach: every public module once, every export documented, nothing private. */
import { existsSync } from "node:fs"
import { dirname, join } from "node:path"
import { assert, describe, it } from "vitest"
import { firstSentence, folders, headerOf, modulesOf, render } from "../../.config/barrel.ts"
import { run } from "./run.ts"
import {
  assertNone,
  filesIn,
  isBarrel,
  isInternal,
  lineAt,
  moduleOf,
  parse,
  read,
  root,
  type Source
} from "./source.ts"

const publicFiles = filesIn("src").filter((path) => !isInternal(path) && !isBarrel(path))

/** The text of the doc comment that stands right before an offset, without stars. */
const docBefore = ({ comments, text }: Source, offset: number): string => {
  const comment = comments.findLast(({ end }) => end <= offset)
  if (comment === undefined || !comment.value.startsWith("*") || text.slice(comment.end, offset).trim() !== "")
    return ""
  return comment.value
    .slice(1)
    .replace(/^[ \t]*\* ?/gm, "")
    .trim()
}

interface Exported {
  readonly name: string
  readonly start: number
  readonly doc: string
}

/** The exports of a module with their docs. Of an overloaded function only the first signature needs one. */
const exportsOf = (source: Source): ReadonlyArray<Exported> => {
  const found: Array<Exported> = []
  const add = (name: string, start: number, doc: string) => {
    found.push({ name, start, doc })
  }
  let overloaded = ""
  for (const statement of source.body) {
    const doc = docBefore(source, statement.start)
    if (statement.type === "ExportAllDeclaration") add(`* from ${statement.source.value}`, statement.start, doc)
    if (statement.type === "ExportDefaultDeclaration") add("default", statement.start, doc)
    if (statement.type !== "ExportNamedDeclaration") continue
    for (const specifier of statement.specifiers) {
      const { end, start } = specifier.exported
      add(source.text.slice(start, end), specifier.start, docBefore(source, specifier.start) || doc)
    }
    const { declaration } = statement
    if (declaration === null) continue
    if (declaration.type === "VariableDeclaration") {
      for (const { id } of declaration.declarations) {
        add(source.text.slice(id.start, id.typeAnnotation?.start ?? id.end), statement.start, doc)
      }
    } else if ("id" in declaration && declaration.id) {
      const name = source.text.slice(declaration.id.start, declaration.id.end)
      const isFunction = declaration.type === "FunctionDeclaration" || declaration.type === "TSDeclareFunction"
      if (!isFunction || overloaded !== name) add(name, statement.start, doc)
      overloaded = isFunction ? name : ""
    }
  }
  return found
}

/** Runs a module as a user of the package would, against the sources, and reads what it prints as JSON. */
const evaluate = async (code: string): Promise<unknown> => {
  const args = ["--conditions=@espalier/source", "--input-type=module", "--eval", code]
  const { output, stdout } = await run("node", args)
  try {
    return JSON.parse(stdout)
  } catch {
    return assert.fail(output)
  }
}

describe("exports", () => {
  for (const folder of folders.filter((folder) => modulesOf(folder).length > 0)) {
    const index = `${folder}/index.ts`
    it(`${index} is current`, () => {
      const current = existsSync(join(root, index)) ? read(index) : ""
      assert.strictEqual(current, render(folder), `${index} is not what the modules say: npm run barrel`)
    })

    it(`${index} exports every public module exactly once`, async () => {
      const entry = folder === "src" ? "espalier" : `espalier/${moduleOf(folder)}`
      const names = await evaluate(`console.log(JSON.stringify(Object.keys(await import(${JSON.stringify(entry)}))))`)
      assert.deepStrictEqual(names, [...modulesOf(folder)])
    })
  }

  it("no other folder has a barrel", () => {
    assertNone(
      filesIn("src")
        .filter((path) => isBarrel(path) && !folders.includes(dirname(path)))
        .map((path) => `${path} is a barrel; its modules are reached one by one, as espalier/folder/Module`)
    )
  })

  it("every module opens with a doc comment: a first sentence and @since", () => {
    assertNone(
      publicFiles.flatMap((path) => {
        const header = headerOf(read(path))
        return [
          ...(firstSentence(header) === ""
            ? [`${path}:1 has no header with a first sentence; say what the module is for`]
            : []),
          ...(header.includes("@since ") ? [] : [`${path}:1 has no @since in its header; add @since 0.1.0`])
        ]
      })
    )
  })

  it("every export is documented: a first sentence and @since", () => {
    assertNone(
      publicFiles.flatMap((path) => {
        const source = parse(path)
        return exportsOf(source)
          .filter(({ doc }) => !/@internal\b/.test(doc))
          .flatMap(({ doc, name, start }) => {
            const where = `${path}:${lineAt(source.text, start)} ${name}`
            if (doc === "") return [`${where} has no doc comment right before it; say in a sentence what it is for`]
            return [
              ...(firstSentence(doc) === "" ? [`${where} opens without a full sentence; end it with a full stop`] : []),
              ...(/@since \d+\.\d+\.\d+/.test(doc) ? [] : [`${where} has no @since; add @since 0.1.0`])
            ]
          })
      })
    )
  })

  it("every internal folder is closed in package.json", () => {
    const manifest: { exports: Record<string, unknown> } = JSON.parse(read("package.json"))
    const inside = filesIn("src")
      .filter(isInternal)
      .map((path) => moduleOf(path).replace(/(^|\/)internal\/.*$/, "$1internal"))
    assertNone(
      [...new Set(inside)]
        .filter((folder) => manifest.exports[`./${folder}/*`] !== null)
        .map((folder) => `package.json exports src/${folder}; add "./${folder}/*": null before "./*"`)
    )
  })

  it("a user resolves every public module, and no private one", async () => {
    const files = filesIn("src")
    const specifierOf = (path: string) => `espalier/${moduleOf(path)}`
    const specifiers = JSON.stringify(["espalier/internal/ledger", ...files.map(specifierOf)])
    const states = (await evaluate(`
      const states = {}
      for (const specifier of ${specifiers}) {
        try {
          import.meta.resolve(specifier)
          states[specifier] = "open"
        } catch (error) {
          states[specifier] = error.code
        }
      }
      states.imported = await import("espalier/internal/ledger").then(() => "open", (error) => error.code)
      console.log(JSON.stringify(states))`)) as Record<string, string>
    const closed = "ERR_PACKAGE_PATH_NOT_EXPORTED"
    assert.strictEqual(states["espalier/internal/ledger"], closed)
    assert.strictEqual(states["imported"], closed)
    const barrels = new Set(folders.map((folder) => `${folder}/index.ts`))
    assertNone(
      files.flatMap((path) => {
        const expected = isInternal(path) || barrels.has(path) ? closed : "open"
        const state = states[specifierOf(path)]
        return state === expected
          ? []
          : [`${specifierOf(path)} is ${state}, and should be ${expected}; see "exports" in package.json`]
      })
    )
  })
})
