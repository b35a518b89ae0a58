/** The few members of opossum that the bench uses; the package ships no types of its own. */
declare module "opossum" {
  export default class CircuitBreaker<Arguments extends ReadonlyArray<unknown>, A> {
    constructor(
      action: (...args: Arguments) => Promise<A>,
      options?: {
        readonly timeout?: number | false
        readonly errorThresholdPercentage?: number
        readonly resetTimeout?: number
        readonly volumeThreshold?: number
        readonly capacity?: number
      }
    )
    fire(...args: Arguments): Promise<A>
    shutdown(): void
  }
}
