/**
 * Says where a value does not fit a schema and how, never what the value is.
 *
 * @internal
 */
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type * as SchemaIssue from "effect/SchemaIssue"

const kinds: Record<string, string> = {
  MissingKey: "is missing",
  UnexpectedKey: "is not known",
  InvalidType: "has the wrong type",
  InvalidValue: "has a value that is not allowed",
  Forbidden: "is not allowed",
  AnyOf: "fits none of the alternatives",
  OneOf: "fits more than one alternative"
}

const describe = (issue: SchemaIssue.Issue): string => {
  const path: Array<string> = []
  let at = issue
  for (;;) {
    if (at._tag === "Pointer") {
      for (const key of at.path) path.push(typeof key === "number" ? `[${key}]` : `.${String(key)}`)
      at = at.issue
    } else if (at._tag === "Composite") {
      at = at.issues[0]
    } else if (at._tag === "Encoding") {
      at = at.issue
    } else if (at._tag === "Filter") {
      return `the input${path.join("")} does not pass a check of its schema`
    } else {
      return `the input${path.join("")} ${kinds[at._tag] ?? "does not fit"}`
    }
  }
}

/** A check of values against the decoded side of a schema: the value, or the place that does not fit. */
export const decoder = <S extends Schema.ConstraintDecoder<unknown>>(
  schema: S
): ((input: unknown) => { readonly value: S["Type"] } | { readonly issue: string }) => {
  const decode = Schema.decodeUnknownResult(Schema.toType(schema) as unknown as Schema.Codec<S["Type"]>)
  return (input) => {
    const result = decode(input)
    return Result.isSuccess(result) ? { value: result.success } : { issue: describe(result.failure.issue) }
  }
}
