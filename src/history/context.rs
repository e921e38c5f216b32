//! The client's context of a call (its stack), opaque here.

use std::sync::Arc;

/// Called when the last reference to a context goes. Never under an allocator lock: it may take the
/// Python interpreter's.
pub type DropContext = Arc<dyn Fn(usize) + Send + Sync>;

/// An owned, opaque context.
pub struct Context {
    handle: usize,
    drop: DropContext,
}

impl Context {
    /// Takes ownership of `handle`; `None` for 0.
    pub fn adopt(handle: usize, drop: &DropContext) -> Option<Arc<Self>> {
        (handle != 0).then(|| {
            Arc::new(Self {
                handle,
                drop: drop.clone(),
            })
        })
    }

    /// The client's handle, valid while this lives.
    pub fn handle(&self) -> usize {
        self.handle
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        (self.drop)(self.handle);
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({:#x})", self.handle)
    }
}
