//! The identity of the caller, where the gateway finds it before the layer is called.

use std::sync::Arc;

use http::header::{HOST, HeaderName};
use http::request::Parts;
use http::{HeaderMap, Response, Uri};
use semel::Scope;

use crate::gateway::request::jwt::Verifier;
use crate::gateway::request::problem::Problem;
use crate::gateway::upstream::body::Returned;

/// The way in which a route identifies its callers.
#[derive(Clone)]
pub(in crate::gateway) enum Callers {
    /// Identification by the layer.
    OfLayer,
    /// Identification by the value of a header that a proxy in front of the gateway sets.
    Header { name: HeaderName, realm: Scope },
    /// Identification by a verified token.
    Token(Arc<Verifier>),
}

impl Callers {
    /// The scope of a request's key; `None` if the layer finds it.
    pub(in crate::gateway) async fn scope(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
    ) -> Result<Option<Scope>, Box<Response<Returned>>> {
        match self {
            Self::OfLayer => Ok(None),
            Self::Header { name, realm } => {
                let principal = if *name == HOST { host(headers, uri) } else { only(headers, name) };
                let scope = principal.and_then(|principal| realm.clone().with_principal(&principal).ok());
                scope.map(Some).ok_or_else(|| {
                    let detail = format!(
                        "The request has not exactly one {name} header of at most 255 characters, which says who calls"
                    );
                    Box::new(Problem::SCOPE_MISSING.response(Some(&detail)))
                })
            }
            Self::Token(verifier) => {
                // The future is boxed, because most routes have none.
                let scope = Box::pin(verifier.scope(headers)).await;
                scope.map(Some).map_err(|refused| Box::new(refused.response()))
            }
        }
    }
}

/// The scope that the gateway found, for the layer.
pub(in crate::gateway) fn found(parts: &Parts) -> Option<Scope> {
    parts.extensions.get::<Scope>().cloned()
}

fn only(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    value.to_str().ok().filter(|value| !value.is_empty()).map(str::to_owned)
}

/// The host of the request as the upstream receives it: the host of the target takes precedence
/// over the field.
fn host(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let host =
        uri.authority().map(|authority| authority.as_str().to_owned()).or_else(|| only(headers, &HOST));
    host.map(|host| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_the_target_wins() {
        let headers = HeaderMap::from_iter([(HOST, "B.example".parse().unwrap())]);
        assert_eq!(host(&headers, &"http://A.example:80/x".parse().unwrap()).unwrap(), "a.example:80");
        assert_eq!(host(&headers, &"/x".parse().unwrap()).unwrap(), "b.example");
        assert_eq!(host(&HeaderMap::new(), &"/x".parse().unwrap()), None);
    }
}
