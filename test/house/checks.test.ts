/** What the tools say of the repository, and of the package that would be published. */
import { cpSync, existsSync, rmSync } from "node:fs"
import { join } from "node:path"
import { afterAll, assert, beforeAll, describe, it } from "vitest"
import { modulesOf } from "../../.config/barrel.ts"
import { type Ended, run, temporary } from "./run.ts"
import { assertNone, filesIn, read, root } from "./source.ts"

const passes = ({ code, output }: Ended): void => {
  if (code !== 0) assert.fail(output)
}

const folders = [...["src", "test", "examples"].filter((folder) => filesIn(folder).length > 0), ".config/barrel.ts"]

describe.concurrent("checks", { timeout: 120_000 }, () => {
  it("tsc finds no type error", async () => passes(await run("tsc", ["--noEmit", "--pretty", "false"])))

  it("oxlint finds nothing", async () =>
    passes(await run("oxlint", ["--config", ".config/oxlint.json", "--deny-warnings", ...folders])))

  it("oxfmt would change nothing", async () =>
    passes(await run("oxfmt", ["--check", "--config", ".config/oxfmt.json", ...folders])))

  it("git does not keep what the build makes", () => {
    assert.include(read(".gitignore").split("\n"), "dist")
  })
})

describe("package", { timeout: 120_000 }, () => {
  // A copy, so that two runs side by side do not build into the same folder and nothing stale is packed.
  const folder = temporary("package")
  const maxJsBytes = 500_000
  let built: Ended
  let packed: Ended
  let tarball = ""
  let files: ReadonlyArray<{ readonly path: string; readonly size: number }> = []

  beforeAll(async () => {
    const kept = ["src", ".config", "package.json", "tsconfig.json", "README.md", "LICENSE", "CHANGELOG.md"]
    for (const name of kept.filter((name) => existsSync(join(root, name)))) {
      cpSync(join(root, name), join(folder, name), { recursive: true })
    }
    built = await run("tsc", ["-p", ".config/tsconfig.build.json", "--pretty", "false"], folder)
    packed = await run("npm", ["pack", "--json", "--ignore-scripts"], folder)
    if (packed.code !== 0) return
    // npm 11 prints an array, npm 12 an object by package name.
    const answer: Record<string, { filename: string; files: typeof files }> = JSON.parse(packed.stdout)
    for (const entry of Object.values(answer)) {
      tarball = entry.filename
      files = entry.files
    }
  }, 120_000)
  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  it("builds", () => passes(built))

  it("packs", () => passes(packed))

  it("publint finds nothing", async () => passes(await run("publint", ["--strict", tarball], folder)))

  it("attw finds types for every entry point", async () =>
    passes(await run("attw", [tarball, "--profile", "esm-only", "--no-emoji", "--no-color"], folder)))

  it("loads as a user loads it", async () => {
    const script = `console.log(Object.keys(await import("espalier")).join())`
    const { code, output, stdout } = await run("node", ["--input-type=module", "--eval", script], folder)
    if (code !== 0) assert.fail(output)
    assert.deepStrictEqual(stdout.trim().split(","), [...modulesOf("src")])
  })

  it("holds sources, build and papers, and nothing else", () => {
    const welcome =
      /^(?:(?:dist|src)\/[\w/-]+(?:\.d)?\.(?:ts|js|json)(?:\.map)?|package\.json|README\.md|LICENSE|CHANGELOG\.md)$/
    assert.isAbove(files.length, 0)
    assertNone(
      files
        .filter(({ path }) => !welcome.test(path))
        .map(({ path }) => `${path} would be published; see "files" in package.json`)
    )
  })

  it("holds no secret", () => {
    // Keys of model providers and forges, and private keys, by their published prefixes.
    const secret =
      /\b(?:sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{30,}|AKIA[0-9A-Z]{16})\b|-----BEGIN [A-Z ]*PRIVATE KEY/
    assertNone(
      filesIn("src")
        .filter((path) => secret.test(read(path)))
        .map((path) => `${path} holds what looks like a key; read it from Config`)
    )
  })

  it(`holds at most ${maxJsBytes / 1000} kB of JavaScript`, () => {
    const bytes = files.filter(({ path }) => path.endsWith(".js")).reduce((sum, { size }) => sum + size, 0)
    assert.isAbove(bytes, 0)
    assert.isAtMost(bytes, maxJsBytes, "split what few users need into a package of its own")
  })
})
