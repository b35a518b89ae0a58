/**
 * An agent as the tree sees it: no types of its own, only what is needed to run a node.
 *
 * @internal
 */
import type * as Effect from "effect/Effect"
import type { Spend } from "../../Spend.ts"

export interface Definition {
  readonly name: string
  /** Its name among the layers that try again. */
  readonly layer: string
  /** The input that passes the schema, or what is wrong with it. */
  readonly decode: (input: unknown) => { readonly value: unknown } | { readonly issue: string }
  readonly run: (input: unknown, self: Self) => Effect.Effect<unknown, unknown, unknown>
  readonly verify: ((output: unknown, input: unknown) => Effect.Effect<boolean, unknown, unknown>) | undefined
  readonly checksPartial: ((value: unknown) => boolean) | undefined
  readonly estimateTokens: number
  readonly estimateMicroDollars: number | undefined
  readonly estimateMillis: number
  readonly grant: Spend | undefined
  readonly reserve: Spend | undefined
  readonly reserveMillis: number | undefined
  readonly identity: (input: unknown) => unknown
  readonly measure: ((input: unknown) => number) | undefined
  readonly label: ((input: unknown) => string) | undefined
}

export interface Self {
  readonly partial: (value: never) => Effect.Effect<void>
}
