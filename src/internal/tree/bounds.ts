/**
 * How large a tree may grow. Every bound has a default that stops a runaway plan and lets honest work pass.
 *
 * @internal
 */
import { finite, integer, integerOrInfinity } from "../number.ts"

export interface Bounds {
  readonly depth: number
  readonly width: number
  readonly descendants: number
  readonly spawnsPerSecond: number
  readonly spawnBurst: number
}

/** Each bound is checked where it is configured; `where` names the caller. */
export const make = (where: string, given: Partial<Bounds>): Bounds => ({
  depth: integer(`${where}: depth`, given.depth ?? 16, 0, 1_000_000),
  width: integerOrInfinity(`${where}: width`, given.width ?? 256, 1),
  descendants: integerOrInfinity(`${where}: descendants`, given.descendants ?? 10_000, 0),
  spawnsPerSecond: finite(`${where}: spawnsPerSecond`, given.spawnsPerSecond ?? 100, 0.001, 1e9),
  spawnBurst: integer(`${where}: spawnBurst`, given.spawnBurst ?? 200, 1, 1_000_000_000)
})

/** A task may ask for less than its fleet allows, never for more. */
export const tighter = (a: Bounds, b: Bounds): Bounds => ({
  depth: Math.min(a.depth, b.depth),
  width: Math.min(a.width, b.width),
  descendants: Math.min(a.descendants, b.descendants),
  spawnsPerSecond: Math.min(a.spawnsPerSecond, b.spawnsPerSecond),
  spawnBurst: Math.min(a.spawnBurst, b.spawnBurst)
})
