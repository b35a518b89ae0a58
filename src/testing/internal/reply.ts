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
  const bound = (key: string, exclusive: string, inward: number): number | undefined => {
    const open = schema[exclusive]
    const closed = schema[key]
    return typeof open === "number" ? open + inward : typeof closed === "number" ? closed : undefined
  }
  const step = whole ? 1 : 0.01
  const least = bound("minimum", "exclusiveMinimum", step)
  const most = bound("maximum", "exclusiveMaximum", -step)
  const low = least ?? (most === undefined ? 0 : Math.min(0, most - 100))
  const high = most ?? low + 100
  const value = low + draw() * (high - low)
  return whole ? Math.round(value) : Math.round(value * 100) / 100
}

/** A text within the lengths that a schema asks for. */
const textFor = (draw: () => number, schema: Json): string => {
  const least = typeof schema["minLength"] === "number" ? schema["minLength"] : 0
  const most = typeof schema["maxLength"] === "number" ? schema["maxLength"] : Infinity
  const text = sentence(draw, 4 + Math.floor(draw() * 8)).padEnd(least, ".")
  return text.slice(0, Math.max(least, most))
}

/** What a reference inside the document points to: `#/$defs/Name`. */
const resolve = (reference: string, document: unknown): unknown =>
  reference
    .split("/")
    .slice(1)
    .reduce<unknown>(
      (at, key) => (isRecord(at) ? at[key.replace(/~1/g, "/").replace(/~0/g, "~")] : undefined),
      document
    )

/** A plausible value for a JSON schema; nesting beyond 16 ends in null. */
export const valueFor = (given: unknown, draw: () => number, depth: number = 0, document: unknown = given): unknown => {
  if (!isRecord(given) || depth > 16) return null
  const reference = given["$ref"]
  if (typeof reference === "string") return valueFor(resolve(reference, document), draw, depth + 1, document)
  const parts = Array.isArray(given["allOf"]) ? given["allOf"].filter(isRecord) : []
  const schema: Json = parts.reduce((all, part) => ({ ...all, ...part }), given)
  if ("const" in schema) return schema["const"]
  if (Array.isArray(schema["enum"]) && schema["enum"].length > 0) {
    return schema["enum"][Math.floor(draw() * schema["enum"].length)]
  }
  const either = schema["anyOf"] ?? schema["oneOf"]
  if (Array.isArray(either)) return valueFor(either[0], draw, depth + 1, document)
  const type = Array.isArray(schema["type"]) ? schema["type"][0] : schema["type"]
  switch (type) {
    case "string":
      return textFor(draw, schema)
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
      return Array.from({ length }, () => valueFor(schema["items"], draw, depth + 1, document))
    }
    case "object":
      return Object.fromEntries(
        Object.entries(isRecord(schema["properties"]) ? schema["properties"] : {}).map(([key, inner]) => [
          key,
          valueFor(inner, draw, depth + 1, document)
        ])
      )
    default:
      return isRecord(schema["properties"]) ? valueFor({ ...schema, type: "object" }, draw, depth + 1, document) : null
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
const cutTo = (text: string, cap: number): string => {
  const bytes = encoder.encode(text)
  // Decoding a prefix ends it before a character that is cut in two.
  return bytes.length <= cap * 4 ? text : new TextDecoder().decode(bytes.subarray(0, cap * 4), { stream: true })
}

const encoder = new TextEncoder()

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
