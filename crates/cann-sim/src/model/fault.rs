//! The fault plan: which calls fail, and with which code.
//!
//! ```text
//! plan      = rule *( ";" rule )
//! rule      = call ":" condition *( "," condition )
//! call      = a name of cost::CallKind (`aclrtMalloc`, `launch`, …) or "*"
//! condition = "nth=" N      the N-th call of the kind, counted from 1
//!           | "from=" N     the N-th call of the kind and all later ones
//!           | "every=" N    each N-th call
//!           | "min=" BYTES  only calls for at least so many bytes
//!           | "max=" BYTES  only calls for at most so many bytes
//!           | "p=" P        with probability P in 0..=1
//!           | "seed=" N     start of the pseudo-random sequence (default 1)
//!           | "times=" N    no more than N failures
//!           | "code=" N     the code returned, not 0 (default 207001)
//! BYTES     = digits, optionally with k, m or g (powers of 1024)
//! ```
//!
//! All conditions of a rule must hold. The first rule that holds decides. A
//! call that is made to fail changes nothing.

use ascend_rs_sys::{ACL_ERROR_RT_MEMORY_ALLOCATION, aclError};

use super::cost::{CallKind, kind_by_name};

#[derive(Debug, Clone)]
struct Rule {
    kind: Option<CallKind>,
    nth: Option<u64>,
    from: u64,
    every: Option<u64>,
    min: u64,
    max: u64,
    probability: Option<f64>,
    state: u64,
    times: u64,
    code: aclError,
    seen: u64,
}

/// Rules, and how far each has counted.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    rules: Vec<Rule>,
}

impl FaultPlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// A sentence that names the part it could not read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rules = text
            .split(';')
            .map(str::trim)
            .filter(|rule| !rule.is_empty());
        Ok(FaultPlan {
            rules: rules.map(parse_rule).collect::<Result<_, _>>()?,
        })
    }

    /// True if no call can fail by plan.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Counts a call and says whether it shall fail, and how.
    pub fn check(&mut self, kind: CallKind, bytes: u64) -> Option<aclError> {
        let mut verdict = None;
        for rule in &mut self.rules {
            if rule.kind.is_some_and(|wanted| wanted != kind) {
                continue;
            }
            if rule.matches(bytes) && verdict.is_none() {
                rule.times -= 1;
                verdict = Some(rule.code);
            }
        }
        verdict
    }
}

impl Rule {
    fn matches(&mut self, bytes: u64) -> bool {
        if bytes < self.min || bytes > self.max {
            return false;
        }
        self.seen += 1;
        self.times > 0
            && self.nth.is_none_or(|n| n == self.seen)
            && self.seen >= self.from
            && self.every.is_none_or(|n| self.seen.is_multiple_of(n))
            && self.probability.is_none_or(|p| self.next_unit() < p)
    }

    /// xorshift64*: a number in 0..1.
    fn next_unit(&mut self) -> f64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let bits = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }
}

fn parse_rule(text: &str) -> Result<Rule, String> {
    let (call, conditions) = text
        .split_once(':')
        .ok_or_else(|| format!("no ':' in fault rule {text:?}"))?;
    let kind = match call.trim() {
        "*" => None,
        name => Some(kind_by_name(name).ok_or_else(|| format!("no call is named {name:?}"))?),
    };
    let mut rule = Rule {
        kind,
        nth: None,
        from: 0,
        every: None,
        min: 0,
        max: u64::MAX,
        probability: None,
        state: 1,
        times: u64::MAX,
        code: ACL_ERROR_RT_MEMORY_ALLOCATION,
        seen: 0,
    };
    for condition in conditions.split(',').map(str::trim) {
        let bad = || format!("cannot read {condition:?} in fault rule {text:?}");
        let (key, value) = condition.split_once('=').ok_or_else(bad)?;
        let number = || parse_bytes(value).ok_or_else(bad);
        let positive = || number().and_then(|n| if n == 0 { Err(bad()) } else { Ok(n) });
        match key {
            "nth" => rule.nth = Some(positive()?),
            "from" => rule.from = positive()?,
            "every" => rule.every = Some(positive()?),
            "min" => rule.min = number()?,
            "max" => rule.max = number()?,
            "seed" => rule.state = positive()?,
            "times" => rule.times = number()?,
            "code" => {
                rule.code = value.parse().map_err(|_| bad())?;
                if rule.code == 0 {
                    // The call would do nothing and say that it succeeded.
                    return Err(bad());
                }
            }
            "p" => {
                let p: f64 = value.parse().map_err(|_| bad())?;
                if !(0.0..=1.0).contains(&p) {
                    return Err(bad());
                }
                rule.probability = Some(p);
            }
            _ => return Err(bad()),
        }
    }
    Ok(rule)
}

/// Reads digits with an optional k, m or g (powers of 1024, any case).
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, shift) = match text.bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_of_a_size_fails() {
        let mut plan = FaultPlan::parse("aclrtMalloc:nth=2,min=1m,code=207018").unwrap();
        assert_eq!(plan.check(CallKind::Malloc, 2 << 20), None);
        assert_eq!(plan.check(CallKind::Malloc, 10), None, "too small to count");
        assert_eq!(plan.check(CallKind::Free, 2 << 20), None, "another kind");
        assert_eq!(plan.check(CallKind::Malloc, 2 << 20), Some(207018));
        assert_eq!(plan.check(CallKind::Malloc, 2 << 20), None);
    }

    #[test]
    fn all_calls_from_the_nth_on_fail() {
        let mut plan = FaultPlan::parse("*:from=3,code=507899").unwrap();
        let codes = [(); 5].map(|()| plan.check(CallKind::Free, 0));
        assert_eq!(
            codes,
            [None, None, Some(507899), Some(507899), Some(507899)]
        );
    }

    #[test]
    fn a_probability_is_kept_and_repeats_with_its_seed() {
        let run = |seed| {
            let mut plan = FaultPlan::parse(&format!("*:p=0.25,seed={seed}")).unwrap();
            (0..4000)
                .map(|_| plan.check(CallKind::Launch, 0).is_some())
                .collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        let failures = run(7).into_iter().filter(|failed| *failed).count();
        assert!((800..1200).contains(&failures), "{failures} of 4000");
    }

    #[test]
    fn times_bounds_the_failures() {
        let mut plan = FaultPlan::parse("aclrtMapMem:times=1").unwrap();
        assert_eq!(plan.check(CallKind::Map, 0), Some(207001));
        assert_eq!(plan.check(CallKind::Map, 0), None);
    }

    #[test]
    fn nonsense_is_named() {
        for text in [
            "aclrtMalloc",
            "nope:nth=1",
            "aclrtMalloc:nth=0",
            "aclrtMalloc:p=2",
            "aclrtMalloc:nth=1,code=0",
            "*:x=1",
        ] {
            assert!(FaultPlan::parse(text).is_err(), "{text}");
        }
    }
}
