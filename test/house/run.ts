/** Runs the tools of node_modules/.bin, and gives them a place to work in. */
import { execFile } from "node:child_process"
import { mkdirSync, writeFileSync } from "node:fs"
import { delimiter, join } from "node:path"
import { stripVTControlCharacters } from "node:util"
import { root } from "./source.ts"

export interface Ended {
  readonly code: number
  readonly stdout: string
  /** Both streams, without colors, as a failure message. */
  readonly output: string
}

const bin = join(root, "node_modules/.bin")

/** Runs a tool to its end; never rejects. Output is bounded to 16 MB, time to two minutes. */
export const run = (tool: string, args: ReadonlyArray<string>, cwd: string = root): Promise<Ended> =>
  new Promise((resolve) => {
    const env = {
      ...process.env,
      PATH: `${bin}${delimiter}${process.env["PATH"]}`,
      NO_COLOR: "1",
      FORCE_COLOR: undefined
    }
    execFile(tool, args, { cwd, env, maxBuffer: 16_000_000, timeout: 120_000 }, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === "number" ? error.code : 1
      const cause = error !== null && typeof error.code !== "number" ? `${error.message}\n` : ""
      resolve({ code, stdout, output: stripVTControlCharacters(`${cause}${stdout}${stderr}`) })
    })
  })

/**
 * A folder of this process below test/.tmp, which git and the other tools pass by. It must be inside the package, so that
 * `espalier/…` means the sources, and outside node_modules, where Node strips no types.
 */
export const temporary = (name: string): string => {
  const parent = join(root, "test/.tmp")
  const folder = join(parent, `${name}-${process.pid}`)
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(parent, ".gitignore"), "*\n")
  return folder
}
