/// What a [`Mutex`](super::Mutex) protects. Most of its state may be late while nobody looks at it.
pub trait Guarded {
    /// The lock was taken by someone who may look at everything: brings what is late up to date.
    fn entered(&mut self) {}
    /// It was taken by someone who may look at everything but what is late on purpose.
    fn entered_keeping(&mut self) {}
    /// Someone looks, for another reason than to serve a request.
    fn seen(&mut self) {}
    /// The lock is about to be given back by someone who may have changed anything.
    fn leaving(&mut self) {}
    /// The lock's holder panicked. Called while the thread unwinds: must not panic.
    fn poisoned(&mut self) {}
}
