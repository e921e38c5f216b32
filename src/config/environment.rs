//! Which environment variable holds the configuration string.

use super::ConfigError;

/// torch_npu's own variable.
const NPU_VARIABLE: &str = "PYTORCH_NPU_ALLOC_CONF";
/// The variable of every accelerator.
const COMMON_VARIABLE: &str = "PYTORCH_ALLOC_CONF";

/// The configuration string of the process, `None` when neither `PYTORCH_NPU_ALLOC_CONF` nor
/// `PYTORCH_ALLOC_CONF` is set. `get` looks a variable up; a variable set to nothing counts as set.
///
/// # Errors
/// [`ConfigError::BothVariables`] when both are set, whatever they hold.
pub fn from_environment(
    get: impl Fn(&str) -> Option<String>,
) -> Result<Option<String>, ConfigError> {
    match (get(NPU_VARIABLE), get(COMMON_VARIABLE)) {
        (Some(_), Some(_)) => Err(ConfigError::BothVariables),
        (npu, common) => Ok(npu.or(common)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(set: &[(&str, &str)]) -> Result<Option<String>, ConfigError> {
        from_environment(|name| {
            set.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn either_variable_is_read() {
        assert_eq!(lookup(&[]).unwrap(), None);
        assert_eq!(
            lookup(&[(NPU_VARIABLE, "a")]).unwrap().as_deref(),
            Some("a")
        );
        assert_eq!(
            lookup(&[(COMMON_VARIABLE, "b")]).unwrap().as_deref(),
            Some("b")
        );
        assert_eq!(lookup(&[("PYTORCH_CUDA_ALLOC_CONF", "c")]).unwrap(), None);
    }

    #[test]
    fn both_variables_are_refused_even_when_empty() {
        let error = lookup(&[(NPU_VARIABLE, ""), (COMMON_VARIABLE, "")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Both PYTORCH_NPU_ALLOC_CONF and PYTORCH_ALLOC_CONF have been set, please set only \
             one of them."
        );
    }
}
