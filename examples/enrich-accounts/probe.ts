import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import * as Result from "effect/Result"
import { parse } from "csv-parse/sync"
const P = Schema.Struct({
  symbol: Schema.Literal("MMM"),
  headline: Schema.String,
  fit: Schema.Literals(["high", "medium", "low"]),
  notes: Schema.Array(Schema.String).check(Schema.isMaxLength(3)),
  confidence: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 100 }))
})
console.log(JSON.stringify(Schema.toJsonSchemaDocument(P), null, 1))
const A = Schema.Struct({ Symbol: Schema.NonEmptyString, CIK: Schema.String.check(Schema.isPattern(/^\d+$/)) })
const r = Schema.decodeUnknownResult(A, { errors: "all" })({ Symbol: "", CIK: "x" })
if (Result.isFailure(r)) console.log(JSON.stringify(SchemaIssue.makeFormatterStandardSchemaV1()(r.failure.issue ?? r.failure)))
for (const text of ['a,b\n1,2\n3\n', 'a,b\n1,"2\n3,4\n', 'a,b\n1,2"x"\n', '', 'a,b\n1,2,3\n']) {
  try { console.log(JSON.stringify(parse(text, { columns: true, info: true, bom: true, skip_empty_lines: true }))) } catch (e: any) { console.log(e.code, e.message, e.lines, e.column, e.index) }
}
