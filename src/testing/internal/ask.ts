/**
 * What a client asks, whatever the provider's shape: decoded once from the three request bodies.
 *
 * @internal
 */
export type Api = "chat" | "responses" | "messages"

export interface Ask {
  readonly api: Api
  readonly model: string
  /** All texts of the prompt, joined. */
  readonly prompt: string
  readonly promptTokens: number
  /** The most tokens the answer may have. */
  readonly cap: number
  readonly stream: boolean
  readonly includeUsage: boolean
  /** The schema that the answer must fit, as text or as the input of the forced tool. */
  readonly schema: unknown
  readonly tool: string | undefined
}

/** Answers without a stated cap are cut here, as providers do at the model's own limit. */
const defaultCap = 4_096

const encoder = new TextEncoder()

/** Tokens of a text: a quarter of its bytes, at least 1. */
export const tokensOf = (text: string): number => Math.max(1, Math.ceil(encoder.encode(text).length / 4))

type Json = Readonly<Record<string, unknown>>
const isRecord = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value)
const at = (value: unknown, ...path: ReadonlyArray<string>): unknown =>
  path.reduce<unknown>((inner, key) => (isRecord(inner) ? inner[key] : undefined), value)

/** Every text inside a prompt, however its parts are nested; at most 64 deep. */
const textsOf = (value: unknown, depth: number = 0): string => {
  if (typeof value === "string") return value
  if (depth > 64) return ""
  if (Array.isArray(value)) return value.map((item) => textsOf(item, depth + 1)).join("\n")
  if (!isRecord(value)) return ""
  return ["text", "content", "arguments", "input", "output"].map((key) => textsOf(value[key], depth + 1)).join("")
}

const capOf = (value: unknown): number =>
  typeof value === "number" && Number.isInteger(value) && value > 0 ? value : defaultCap

const forced = (body: Json): { readonly tool: string | undefined; readonly schema: unknown } => {
  const choice = body["tool_choice"]
  const tools = Array.isArray(body["tools"]) ? body["tools"] : []
  const name =
    at(choice, "name") ??
    at(choice, "function", "name") ??
    (choice === "required" || at(choice, "type") === "any" ? true : undefined)
  if (name === undefined) return { tool: undefined, schema: undefined }
  const tool: unknown = tools.find(
    (each) => name === true || at(each, "name") === name || at(each, "function", "name") === name
  )
  const found = at(tool, "name") ?? at(tool, "function", "name")
  if (typeof found !== "string") return { tool: undefined, schema: undefined }
  return {
    tool: found,
    schema: at(tool, "input_schema") ?? at(tool, "function", "parameters") ?? at(tool, "parameters")
  }
}

/** What is asked, or what is wrong with the body. */
export const decode = (api: Api, body: unknown): Ask | { readonly problem: string; readonly param: string } => {
  if (!isRecord(body)) return { problem: "the body must be a JSON object", param: "body" }
  const { model } = body
  if (typeof model !== "string" || model === "")
    return { problem: "you must provide a model parameter", param: "model" }
  const input = api === "responses" ? body["input"] : body["messages"]
  const field = api === "responses" ? "input" : "messages"
  if (typeof input !== "string" && !Array.isArray(input)) return { problem: `${field}: field required`, param: field }
  if (api === "messages" && capOf(body["max_tokens"]) !== body["max_tokens"]) {
    return { problem: "max_tokens: field required", param: "max_tokens" }
  }
  const prompt = [body["system"], body["instructions"], input]
    .map((part) => textsOf(part))
    .join("\n")
    .trim()
  const tool = forced(body)
  return {
    api,
    model,
    prompt,
    promptTokens: tokensOf(prompt),
    cap: capOf(body["max_tokens"] ?? body["max_completion_tokens"] ?? body["max_output_tokens"]),
    stream: body["stream"] === true,
    includeUsage: at(body["stream_options"], "include_usage") === true,
    schema: tool.schema ?? at(body, "response_format", "json_schema", "schema") ?? at(body, "text", "format", "schema"),
    tool: tool.tool
  }
}
