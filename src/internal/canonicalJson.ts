/**
 * One text for all values that mean the same task: object keys sorted, white space and case folded, and what changes
 * from one attempt to the next (ids of requests, timestamps) removed.
 *
 * A model that delegates to itself rarely repeats its words to the letter: it adds a run id, the time, a line break.
 * What is left after normalizing is compared. Values that are wholly an id stay unless their key says that they belong
 * to the attempt (`requestId`, `timestamp`), because `{ documentId: … }` is the task itself.
 *
 * Bounds: nesting 32, text 262 144 characters; beyond either only the shape (the number of items) is written, so the
 * cost of a huge or cyclic input is bounded.
 *
 * @internal
 */
const maxDepth = 32
const maxLength = 262_144

const uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
const timestamp = "\\d{4}-\\d{2}-\\d{2}[t ]\\d{2}:\\d{2}(?::\\d{2}(?:\\.\\d{1,9})?)?(?:z|[+-]\\d{2}:?\\d{2})?"
const ulid = "\\b[0-7][0-9a-hjkmnp-tv-z]{25}\\b"
const prefixed = "\\b(?:req|run|msg|call|toolu|chatcmpl|resp|trace|span)[_-][0-9a-z_-]{6,}\\b"
const volatile = new RegExp(`${uuid}|${timestamp}|${ulid}|${prefixed}`, "g")
const attemptKey =
  /^(?:(?:request|trace|span|run|session|call|message|correlation|attempt|idempotency)[_-]?(?:id|key)|nonce|time(?:stamp)?|now|date|(?:created|updated|sent|started)[_-]?at)$/i

const normalizeText = (text: string): string => {
  const folded = text.toLowerCase()
  const stripped = folded.replace(volatile, "").replace(/\s+/g, " ").trim()
  return stripped === "" ? folded.trim() : stripped
}

/** The canonical text of any value; equal for equal tasks. */
export const canonicalJson = (value: unknown): string => {
  let out = ""
  const write = (value: unknown, depth: number): void => {
    switch (typeof value) {
      case "string":
        out += JSON.stringify(normalizeText(value.length > maxLength ? value.slice(0, maxLength) : value))
        return
      case "number":
      case "boolean":
      case "bigint":
        out += String(value)
        return
      case "object":
        break
      default:
        out += "null"
        return
    }
    if (value === null) {
      out += "null"
    } else if (Array.isArray(value)) {
      out += `[${value.length}:`
      if (depth < maxDepth) {
        for (const item of value) {
          if (out.length > maxLength) break
          write(item, depth + 1)
          out += ","
        }
      }
      out += "]"
    } else if (value instanceof Date) {
      out += "null"
    } else {
      const record = value as Readonly<Record<string, unknown>>
      const keys = Object.keys(record).sort()
      out += `{${keys.length}:`
      if (depth < maxDepth) {
        for (const key of keys) {
          if (out.length > maxLength) break
          out += `${JSON.stringify(key)}:`
          if (attemptKey.test(key)) out += "null"
          else write(record[key], depth + 1)
          out += ","
        }
      }
      out += "}"
    }
  }
  write(value, 0)
  return out
}
