/**
 * What the model says when no script says otherwise: words from a fixed vocabulary, or a value that fits the schema that
 * was asked for. A function of its draws alone.
 *
 * @internal
 */
import type { Ask } from "./ask.ts"
import { tokensOf } from "./ask.ts"

const words =
  "the company serves customers in several regions and reports steady demand for its main products while costs rise slowly new plants open next year prices hold and margins stay narrow analysts expect growth".split(
    " "
  )

type Json = Readonly<Record<string, unknown>>
const isRecord = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value)

const sentence = (draw: () => number, length: number): string => {
  const text = Array.from({ length }, () => words[Math.floor(draw() * words.length)]).join(" ")
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`
}

const between = (draw: () => number, schema: Json, whole: boolean): number => {
  const low = typeof schema["minimum"] === "number" ? schema["minimum"] : 0
  const high = typeof schema["maximum"] === "number" ? schema["maximum"] : low + 100
  const value = low + draw() * (high - low)
  return whole ? Math.round(value) : Math.round(value * 100) / 100
}

/** A plausible value for a JSON schema; nesting beyond 16 ends in null. */
export const valueFor = (schema: unknown, draw: () => number, depth: number = 0): unknown => {
  if (!isRecord(schema) || depth > 16) return null
  if ("const" in schema) return schema["const"]
  if (Array.isArray(schema["enum"]) && schema["enum"].length > 0) {
    return schema["enum"][Math.floor(draw() * schema["enum"].length)]
  }
  const either = schema["anyOf"] ?? schema["oneOf"]
  if (Array.isArray(either)) return valueFor(either[0], draw, depth + 1)
  const type = Array.isArray(schema["type"]) ? schema["type"][0] : schema["type"]
  switch (type) {
    case "string":
      return sentence(draw, 4 + Math.floor(draw() * 8))
    case "integer":
      return between(draw, schema, true)
    case "number":
      return between(draw, schema, false)
    case "boolean":
      return draw() < 0.5
    case "array": {
      const least = typeof schema["minItems"] === "number" ? schema["minItems"] : 1
      const most = typeof schema["maxItems"] === "number" ? schema["maxItems"] : least + 2
      const length = least + Math.floor(draw() * (most - least + 1))
      return Array.from({ length }, () => valueFor(schema["items"], draw, depth + 1))
    }
    case "object":
      return Object.fromEntries(
        Object.entries(isRecord(schema["properties"]) ? schema["properties"] : {}).map(([key, inner]) => [
          key,
          valueFor(inner, draw, depth + 1)
        ])
      )
    default:
      return isRecord(schema["properties"]) ? valueFor({ ...schema, type: "object" }, draw, depth + 1) : null
  }
}

export interface Reply {
  readonly text: string
  readonly tool: string | undefined
  readonly outputTokens: number
  readonly reasoningTokens: number
  readonly cachedTokens: number
  /** Whether the cap cut it. */
  readonly cut: boolean
}

/** A text cut to at most `cap` tokens. */
const cutTo = (text: string, cap: number): string =>
  tokensOf(text) <= cap ? text : text.slice(0, Math.max(1, cap * 4 - 3))

/** The reply to an ask; `script` may give a text or a JSON value instead of the default. */
export const replyTo = (
  ask: Ask,
  draw: () => number,
  script: ((ask: Ask) => { readonly text: string } | { readonly json: unknown } | undefined) | undefined
): Reply => {
  const scripted = script?.(ask)
  const full =
    scripted === undefined
      ? ask.schema === undefined
        ? Array.from({ length: 2 + Math.floor(draw() * 5) }, () => sentence(draw, 8 + Math.floor(draw() * 10))).join(
            " "
          )
        : JSON.stringify(valueFor(ask.schema, draw))
      : "text" in scripted
        ? scripted.text
        : JSON.stringify(scripted.json)
  const reasoning = Math.floor(draw() * 40)
  const reasoningTokens = Math.min(reasoning, Math.max(0, ask.cap - 1))
  const text = cutTo(full, ask.cap - reasoningTokens)
  return {
    text,
    tool: ask.tool,
    outputTokens: tokensOf(text) + reasoningTokens,
    reasoningTokens,
    cachedTokens: Math.floor(ask.promptTokens * (draw() < 0.3 ? 0.5 : 0)),
    cut: text !== full
  }
}
