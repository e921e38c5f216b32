//! The one error of the model: the code a caller of the C API gets, and a
//! sentence for `aclGetRecentErrMsg`.

use ascend_rs_sys::aclError;

/// A call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// What the C function returns.
    pub code: aclError,
    /// What was wrong.
    pub text: &'static str,
}

/// Result of a call on the model.
pub type Result<T> = core::result::Result<T, Failure>;

/// An error with a code and a sentence.
pub fn fail<T>(code: aclError, text: &'static str) -> Result<T> {
    Err(Failure { code, text })
}
