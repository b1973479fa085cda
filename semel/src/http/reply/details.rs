//! The problem of each refusal, with its advice.

use ::http::StatusCode;
use serde_json::{Value, json};

use crate::http::reply::problem::ProblemType;
use crate::http::reply::rejection::Rejection;

impl Rejection {
    /// The part that does not depend on the request.
    pub fn problem_type(&self) -> ProblemType {
        match self {
            Self::KeyMissing => ProblemType::KEY_MISSING,
            Self::KeyInvalid(_) => ProblemType::KEY_INVALID,
            Self::RequestUnreadable => ProblemType::REQUEST_UNREADABLE,
            Self::RequestTimeout => ProblemType::REQUEST_TIMEOUT,
            Self::RequestTooLarge(_) => ProblemType::REQUEST_TOO_LARGE,
            Self::KeyPending { .. } => ProblemType::KEY_PENDING,
            Self::OutcomeUnknown(_) => ProblemType::OUTCOME_UNKNOWN,
            Self::KeyReused { .. } => ProblemType::KEY_REUSED,
            Self::StoreUnavailable => ProblemType::STORE_UNAVAILABLE,
            Self::OutcomePending => ProblemType::OUTCOME_PENDING,
            Self::HandlerFailed { .. } => ProblemType::HANDLER_FAILED,
            Self::OutcomeUnrecorded => ProblemType::OUTCOME_UNRECORDED,
            Self::CompletionMissing => ProblemType::COMPLETION_MISSING,
            Self::ScopeUnknown => ProblemType::SCOPE_UNKNOWN,
            Self::AnswerBrokeOff { .. } => ProblemType::ANSWER_BROKE_OFF,
            Self::ScopeMissing { .. } => ProblemType::SCOPE_MISSING,
            Self::TooManyAttempts => ProblemType::TOO_MANY_ATTEMPTS,
            Self::StoreFull => ProblemType::STORE_FULL,
            Self::QuotaExceeded { .. } => ProblemType::QUOTA_EXCEEDED,
            Self::MemoryExhausted => ProblemType::MEMORY_EXHAUSTED,
        }
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.problem_type().status()
    }

    /// The code for programs. It never changes.
    pub fn code(&self) -> &'static str {
        self.problem_type().code()
    }

    /// The title for people, the same for every request that is refused for this reason.
    pub fn title(&self) -> &'static str {
        self.problem_type().title()
    }

    /// The advice for this case.
    pub fn detail(&self) -> String {
        let fixed = match self {
            Self::KeyMissing => {
                "Send the header with a value that is new for each operation and the same for its repeats."
            }
            Self::KeyInvalid(fault) => {
                return format!(
                    "The header does not contain exactly one key: {fault}. This request did nothing. Send one key of 1 to \
                     255 printable ASCII characters."
                );
            }
            Self::RequestUnreadable => {
                "The body ended too early. This request did nothing; send it again with the same key."
            }
            Self::RequestTimeout => {
                "The body did not arrive in time. This request did nothing; send it again with the same key."
            }
            Self::RequestTooLarge(limit) => {
                return format!(
                    "The body is over the limit of {limit} bytes. This request did nothing. Send less, or ask the \
                     operator to raise the limit."
                );
            }
            Self::KeyPending { .. } => "Send the same request with the same key later.",
            Self::OutcomeUnknown(_)
            | Self::HandlerFailed { held: true }
            | Self::AnswerBrokeOff { held: true } => {
                "An attempt was lost, and it is not known whether it took effect. A new key is not safe: it could happen \
                 twice. The key is held until an operator or the service settles it."
            }
            Self::HandlerFailed { held: false } | Self::AnswerBrokeOff { held: false } => {
                "An attempt was lost, and it is not known whether it took effect. A new key is not safe: it could happen \
                 twice. Send the same request with the same key later."
            }
            Self::KeyReused { .. } => {
                "Use a new key for a new request. The first request stands, and repeats of it are answered."
            }
            Self::StoreUnavailable | Self::MemoryExhausted => {
                "This request did nothing; an earlier one with the same key may have. Send the same request with the \
                 same key later."
            }
            Self::OutcomePending => {
                "The request was carried out, or may have been. Send the same request with the same key later to learn \
                 its outcome."
            }
            Self::OutcomeUnrecorded => {
                "The request was carried out, but its outcome could not be recorded. A new key is not safe: it would \
                 happen twice. The key is held until an operator or the service settles it."
            }
            Self::CompletionMissing => {
                "The request was carried out, but the service did not record its outcome in the transaction of its \
                 effect, as its policy `transactional` requires. A new key is not safe: it would happen twice. The key is \
                 held until an operator or the service settles it."
            }
            Self::ScopeMissing { expected, has_cookies } => {
                let cookies = match has_cookies {
                    true => {
                        " Cookies do not count, unless the operator names the one that identifies callers (`cookie:NAME`)."
                    }
                    false => "",
                };
                return format!(
                    "The request has none of the credentials that distinguish callers: {expected}. This request did \
                     nothing; send it again with one of them.{cookies} The operator can name other headers \
                     (`credentials:NAME`), or let all callers count as one (`--anonymous share` of the gateway, \
                     `with_anonymous_callers` of the layer)."
                );
            }
            Self::ScopeUnknown => "The service did not identify the caller. This request did nothing.",
            Self::TooManyAttempts => {
                "Too many requests are being processed. This request did nothing; send it again with the same key later."
            }
            Self::StoreFull => {
                "The store of outcomes is full, so no new key is accepted. This request did nothing; send it again with \
                 the same key later."
            }
            Self::QuotaExceeded { .. } => {
                "Too many keys of this caller are new or not settled. This request did nothing; send it again with the \
                 same key later."
            }
        };
        fixed.to_owned()
    }

    /// The problem as an object of RFC 9457; see [`ProblemType::details`].
    pub fn problem_details(&self, page: Option<&str>) -> Value {
        let mut problem = self.problem_type().details(&self.detail(), page);
        match self {
            Self::KeyPending { since: Some(since), .. } | Self::KeyReused { since } => {
                problem["since"] = json!(since.to_string());
            }
            Self::OutcomeUnknown(held) => {
                problem["attempt"] = json!(held.attempt);
                problem["since"] = json!(held.since.to_string());
            }
            _ => {}
        }
        problem
    }
}
