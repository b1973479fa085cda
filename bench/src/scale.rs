//! The positions of values and names on a plot.

/// The mapping from values to positions on the page.
pub(crate) struct Scale {
    from: f64,
    to: f64,
    logarithmic: bool,
    start: f64,
    end: f64,
}

impl Scale {
    /// A scale between two positions that has room for these values, and begins and ends with a
    /// round one.
    pub(crate) fn over(values: impl Iterator<Item = f64>, logarithmic: bool, start: f64, end: f64) -> Self {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (!logarithmic || *value > 0.0)) {
            (from, to) = (from.min(value), to.max(value));
        }
        if from > to {
            (from, to) = (1.0, 10.0);
        }
        let mut scale = Self { from: 0.0, to: to.max(1e-9), logarithmic, start, end };
        if logarithmic {
            let below = |value: f64| {
                let decade = 10_f64.powf(value.log10().floor());
                [5.0, 2.0, 1.0].map(|part| part * decade).into_iter().find(|round| *round <= value * 1.0001)
            };
            let above = |value: f64| {
                let decade = 10_f64.powf(value.log10().floor());
                [1.0, 2.0, 5.0, 10.0]
                    .map(|part| part * decade)
                    .into_iter()
                    .find(|round| *round >= value * 0.9999)
            };
            scale.from = below(from).unwrap_or(from);
            scale.to = above(to).unwrap_or(to).max(scale.from * 2.0);
        } else {
            let step = scale.step();
            scale.to = (scale.to / step).ceil() * step;
        }
        scale
    }

    pub(crate) fn at(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        self.start + part * (self.end - self.start)
    }

    /// One, two or five times a power of ten, so that there are about five steps.
    fn step(&self) -> f64 {
        let rough = (self.to - self.from) / 5.0;
        let decade = 10_f64.powf(rough.log10().floor());
        [1.0, 2.0, 5.0]
            .map(|part| part * decade)
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(decade * 10.0)
    }

    pub(crate) fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            let step = self.step();
            let count = ((self.to - self.from) / step).round() as usize;
            return (0..=count).map(|at| self.from + at as f64 * step).collect();
        }
        // A scale over many decades has room only for their beginnings.
        let parts: &[f64] = if self.to / self.from > 2000.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
        let all = decades.flat_map(|decade| parts.iter().map(move |part| part * 10_f64.powi(decade)));
        all.filter(|tick| (self.from * 0.999..=self.to * 1.001).contains(tick)).collect()
    }
}

/// Moves overlapping positions apart, within these bounds, and keeps their order.
pub(crate) fn apart(wanted: &[f64], room: f64, from: f64, to: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut places = wanted.to_vec();
    let mut free = from;
    for at in &order {
        places[*at] = places[*at].max(free);
        free = places[*at] + room;
    }
    let mut free = to;
    for at in order.iter().rev() {
        places[*at] = places[*at].min(free);
        free = places[*at] - room;
    }
    places
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn logarithmic_scale_gives_equal_room_to_equal_ratios() {
        let scale = Scale::over([1.0, 1000.0].into_iter(), true, 300.0, 0.0);
        let places = [1.0, 10.0, 100.0, 1000.0].map(|value| scale.at(value).round());
        assert_eq!(places, [300.0, 200.0, 100.0, 0.0]);
        assert_eq!(scale.at(0.0), 300.0, "what is below the scale is at its beginning");
    }

    #[test]
    fn scale_begins_and_ends_with_round_values() {
        let linear = Scale::over([3.0, 47.0].into_iter(), false, 0.0, 100.0);
        assert_eq!(linear.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        let scale = Scale::over([30.0, 700.0].into_iter(), true, 0.0, 100.0);
        assert_eq!(scale.ticks(), [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
    }

    #[test]
    fn names_are_moved_apart_and_stay_in_order_and_within_the_plot() {
        assert_eq!(apart(&[50.0, 10.0, 52.0], 16.0, 0.0, 100.0), [50.0, 10.0, 66.0]);
        assert_eq!(apart(&[99.0, 100.0, 98.0], 16.0, 0.0, 100.0), [84.0, 100.0, 68.0]);
    }
}
