//! The gateway's own metrics.

use http::StatusCode;
use metrics::{Counter, Gauge, counter, gauge};

/// Counters of the gateway; the layer and the store have their own.
pub(super) struct Meter {
    /// Answers by the first digit of the status.
    answers: [Counter; 5],
    connections: Gauge,
}

impl Meter {
    pub(super) fn new() -> Self {
        let answer = |class: &'static str| counter!("semel_gateway_responses_total", "class" => class);
        Self {
            answers: ["1xx", "2xx", "3xx", "4xx", "5xx"].map(answer),
            connections: gauge!("semel_gateway_connections"),
        }
    }

    pub(super) fn answered(&self, status: StatusCode) {
        if let Some(counter) = self.answers.get(usize::from(status.as_u16() / 100).wrapping_sub(1)) {
            counter.increment(1);
        }
    }

    /// Counts a connection until the guard is dropped.
    pub(super) fn connected(&self) -> Connected {
        self.connections.increment(1.0);
        Connected(self.connections.clone())
    }
}

/// An open connection.
pub(super) struct Connected(Gauge);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
