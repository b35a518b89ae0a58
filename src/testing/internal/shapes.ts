/**
 * The three wire shapes: bodies, streams of events and errors, as OpenAI's and Anthropic's clients expect them.
 *
 * @internal
 */
import type { Api, Ask } from "./ask.ts"
import type { Reply } from "./reply.ts"

export interface Answer {
  readonly id: string
  readonly createdSeconds: number
  readonly ask: Ask
  readonly reply: Reply
}

/** One server-sent event; `tokens` is how many output tokens the client has once it has read it. */
export interface Frame {
  readonly event: string | undefined
  readonly data: string
  readonly tokens: number
}

export const isAnthropic = (api: Api): boolean => api === "messages"

const chatUsage = ({ ask, reply }: Answer): object => ({
  prompt_tokens: ask.promptTokens,
  completion_tokens: reply.outputTokens,
  total_tokens: ask.promptTokens + reply.outputTokens,
  prompt_tokens_details: { cached_tokens: reply.cachedTokens, audio_tokens: 0 },
  completion_tokens_details: {
    reasoning_tokens: reply.reasoningTokens,
    audio_tokens: 0,
    accepted_prediction_tokens: 0,
    rejected_prediction_tokens: 0
  }
})

const responsesUsage = ({ ask, reply }: Answer): object => ({
  input_tokens: ask.promptTokens,
  input_tokens_details: { cached_tokens: reply.cachedTokens },
  output_tokens: reply.outputTokens,
  output_tokens_details: { reasoning_tokens: reply.reasoningTokens },
  total_tokens: ask.promptTokens + reply.outputTokens
})

const messagesUsage = ({ ask, reply }: Answer, outputTokens: number): object => ({
  input_tokens: ask.promptTokens - reply.cachedTokens,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: reply.cachedTokens,
  output_tokens: outputTokens
})

const toolCall = (answer: Answer): object => ({
  id: `call_${answer.id.slice(-12)}`,
  type: "function",
  function: { name: answer.reply.tool, arguments: answer.reply.text }
})

const chatFinish = ({ reply }: Answer): string =>
  reply.cut ? "length" : reply.tool === undefined ? "stop" : "tool_calls"
const messagesStop = ({ reply }: Answer): string =>
  reply.cut ? "max_tokens" : reply.tool === undefined ? "end_turn" : "tool_use"

const chat = (answer: Answer): object => ({
  id: answer.id,
  object: "chat.completion",
  created: answer.createdSeconds,
  model: answer.ask.model,
  choices: [
    {
      index: 0,
      message:
        answer.reply.tool === undefined
          ? { role: "assistant", content: answer.reply.text, refusal: null }
          : { role: "assistant", content: null, refusal: null, tool_calls: [toolCall(answer)] },
      logprobs: null,
      finish_reason: chatFinish(answer)
    }
  ],
  usage: chatUsage(answer),
  service_tier: "default"
})

const responsesItem = (answer: Answer, status: string, text: string): object =>
  answer.reply.tool === undefined
    ? {
        id: `msg_${answer.id.slice(5)}`,
        type: "message",
        status,
        role: "assistant",
        content: status === "in_progress" ? [] : [{ type: "output_text", text, annotations: [], logprobs: [] }]
      }
    : {
        id: `fc_${answer.id.slice(5)}`,
        type: "function_call",
        status,
        call_id: `call_${answer.id.slice(-12)}`,
        name: answer.reply.tool,
        arguments: text
      }

const responses = (answer: Answer, status: string): object => ({
  id: answer.id,
  object: "response",
  created_at: answer.createdSeconds,
  status,
  error: null,
  incomplete_details: status === "incomplete" ? { reason: "max_output_tokens" } : null,
  instructions: null,
  max_output_tokens: answer.ask.cap,
  model: answer.ask.model,
  output: status === "in_progress" ? [] : [responsesItem(answer, "completed", answer.reply.text)],
  parallel_tool_calls: true,
  previous_response_id: null,
  store: false,
  temperature: 1,
  tool_choice: "auto",
  tools: [],
  usage: status === "in_progress" ? null : responsesUsage(answer)
})

const messagesBlock = (answer: Answer, empty: boolean): object =>
  answer.reply.tool === undefined
    ? { type: "text", text: empty ? "" : answer.reply.text }
    : {
        type: "tool_use",
        id: `toolu_${answer.id.slice(4)}`,
        name: answer.reply.tool,
        input: empty ? {} : parsed(answer.reply.text)
      }

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return {}
  }
}

const messages = (answer: Answer): object => ({
  id: answer.id,
  type: "message",
  role: "assistant",
  model: answer.ask.model,
  content: [messagesBlock(answer, false)],
  stop_reason: messagesStop(answer),
  stop_sequence: null,
  usage: messagesUsage(answer, answer.reply.outputTokens)
})

/** The whole answer as one body. */
export const body = (answer: Answer): object =>
  answer.ask.api === "chat"
    ? chat(answer)
    : answer.ask.api === "responses"
      ? responses(answer, answer.reply.cut ? "incomplete" : "completed")
      : messages(answer)

/** A text in pieces of about a word each. */
const pieces = (text: string): ReadonlyArray<string> => text.match(/\S+\s*|\s+/g) ?? []

/** The answer as a stream of events. */
export const frames = (answer: Answer): ReadonlyArray<Frame> => {
  const parts = pieces(answer.reply.text)
  const shown = Math.max(1, answer.reply.outputTokens - answer.reply.reasoningTokens)
  const upTo = (index: number): number =>
    answer.reply.reasoningTokens + Math.ceil((shown * (index + 1)) / Math.max(1, parts.length))
  switch (answer.ask.api) {
    case "chat":
      return chatFrames(answer, parts, upTo)
    case "responses":
      return responsesFrames(answer, parts, upTo)
    case "messages":
      return messagesFrames(answer, parts, upTo)
  }
}

type UpTo = (index: number) => number

const chatFrames = (answer: Answer, parts: ReadonlyArray<string>, upTo: UpTo): ReadonlyArray<Frame> => {
  const chunk = (delta: object, finish: string | null, tokens: number): Frame => ({
    event: undefined,
    data: JSON.stringify({
      id: answer.id,
      object: "chat.completion.chunk",
      created: answer.createdSeconds,
      model: answer.ask.model,
      choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }],
      ...(answer.ask.includeUsage ? { usage: null } : {})
    }),
    tokens
  })
  const all = answer.reply.outputTokens
  const { tool } = answer.reply
  const head =
    tool === undefined
      ? { role: "assistant", content: "", refusal: null }
      : {
          role: "assistant",
          content: null,
          tool_calls: [
            { index: 0, id: `call_${answer.id.slice(-12)}`, type: "function", function: { name: tool, arguments: "" } }
          ]
        }
  return [
    chunk(head, null, 0),
    ...parts.map((part, index) =>
      chunk(
        tool === undefined ? { content: part } : { tool_calls: [{ index: 0, function: { arguments: part } }] },
        null,
        upTo(index)
      )
    ),
    chunk({}, chatFinish(answer), all),
    ...(answer.ask.includeUsage
      ? [
          {
            event: undefined,
            data: JSON.stringify({
              id: answer.id,
              object: "chat.completion.chunk",
              created: answer.createdSeconds,
              model: answer.ask.model,
              choices: [],
              usage: chatUsage(answer)
            }),
            tokens: all
          }
        ]
      : []),
    { event: undefined, data: "[DONE]", tokens: all }
  ]
}

const responsesFrames = (answer: Answer, parts: ReadonlyArray<string>, upTo: UpTo): ReadonlyArray<Frame> => {
  let sequence = 0
  const frame = (type: string, rest: object, tokens: number): Frame => ({
    event: type,
    data: JSON.stringify({ type, sequence_number: sequence++, ...rest }),
    tokens
  })
  const all = answer.reply.outputTokens
  const { text, tool } = answer.reply
  const item = tool === undefined ? `msg_${answer.id.slice(5)}` : `fc_${answer.id.slice(5)}`
  const where = { item_id: item, output_index: 0 }
  const status = answer.reply.cut ? "incomplete" : "completed"
  const start = [
    frame("response.created", { response: responses(answer, "in_progress") }, 0),
    frame("response.in_progress", { response: responses(answer, "in_progress") }, 0),
    frame("response.output_item.added", { output_index: 0, item: responsesItem(answer, "in_progress", "") }, 0)
  ]
  const part = { type: "output_text", text: "", annotations: [], logprobs: [] }
  const middle =
    tool === undefined
      ? [
          frame("response.content_part.added", { ...where, content_index: 0, part }, 0),
          ...parts.map((delta, index) =>
            frame("response.output_text.delta", { ...where, content_index: 0, delta, logprobs: [] }, upTo(index))
          ),
          frame("response.output_text.done", { ...where, content_index: 0, text, logprobs: [] }, all),
          frame("response.content_part.done", { ...where, content_index: 0, part: { ...part, text } }, all)
        ]
      : [
          ...parts.map((delta, index) =>
            frame("response.function_call_arguments.delta", { ...where, delta }, upTo(index))
          ),
          frame("response.function_call_arguments.done", { ...where, arguments: text }, all)
        ]
  return [
    ...start,
    ...middle,
    frame("response.output_item.done", { output_index: 0, item: responsesItem(answer, "completed", text) }, all),
    frame(`response.${status}`, { response: responses(answer, status) }, all)
  ]
}

const messagesFrames = (answer: Answer, parts: ReadonlyArray<string>, upTo: UpTo): ReadonlyArray<Frame> => {
  const frame = (type: string, rest: object, tokens: number): Frame => ({
    event: type,
    data: JSON.stringify({ type, ...rest }),
    tokens
  })
  const all = answer.reply.outputTokens
  const isText = answer.reply.tool === undefined
  return [
    frame(
      "message_start",
      { message: { ...messages(answer), content: [], stop_reason: null, usage: messagesUsage(answer, 1) } },
      0
    ),
    frame("content_block_start", { index: 0, content_block: messagesBlock(answer, true) }, 0),
    frame("ping", {}, 0),
    ...parts.map((part, index) =>
      frame(
        "content_block_delta",
        {
          index: 0,
          delta: isText ? { type: "text_delta", text: part } : { type: "input_json_delta", partial_json: part }
        },
        upTo(index)
      )
    ),
    frame("content_block_stop", { index: 0 }, all),
    frame(
      "message_delta",
      { delta: { stop_reason: messagesStop(answer), stop_sequence: null }, usage: { output_tokens: all } },
      all
    ),
    frame("message_stop", {}, all)
  ]
}

/** An error body in the provider's shape. */
export const error = (
  api: Api,
  type: string,
  message: string,
  extra: { readonly code?: string | null; readonly param?: string | null } = {}
): object =>
  isAnthropic(api)
    ? { type: "error", error: { type, message }, request_id: null }
    : { error: { message, type, param: extra.param ?? null, code: extra.code ?? null } }

/** An error event inside a stream that began with a 200. */
export const errorFrame = (api: Api): Frame =>
  isAnthropic(api)
    ? { event: "error", data: JSON.stringify(error(api, "overloaded_error", "Overloaded")), tokens: 0 }
    : {
        event: api === "responses" ? "error" : undefined,
        data: JSON.stringify(
          api === "responses"
            ? {
                type: "error",
                code: "server_error",
                message: "The server had an error",
                param: null,
                sequence_number: 0
              }
            : error(api, "server_error", "The server had an error while processing your request", {
                code: "server_error"
              })
        ),
        tokens: 0
      }
