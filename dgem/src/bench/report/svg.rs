//! The pictures of a page, as plain SVG: a reliability diagram, histograms, bars.
//!
//! All are drawn in a field of 360 × 240 units with the origin at the lower left, `x` and `y` being shares of it.

use std::fmt::Write as _;

use decision::statistics::{Scores, percentile};

use super::html::escaped;
use super::{Bar, Chart};

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 240.0;
/// Room for labels on the left and below.
const LEFT: f64 = 46.0;
const BELOW: f64 = 34.0;
const ABOVE: f64 = 10.0;
const RIGHT_COLOUR: &str = "#2b7bba";
const WRONG_COLOUR: &str = "#d1622b";
const LINE_COLOUR: &str = "#8793a0";
const HISTOGRAM_BINS: usize = 20;

/// One picture, with its name for those who cannot see it.
pub(super) fn draw(chart: &Chart, name: &str) -> String {
    let (body, height) = match chart {
        Chart::Reliability(scores) => (reliability(scores), HEIGHT),
        Chart::Histogram { unit, right, wrong, most } => (histogram(unit, right, wrong, *most), HEIGHT),
        Chart::Bars(bars) => (shares(bars), bars_height(bars.len())),
    };
    let (width, height) = (LEFT + WIDTH + 20.0, ABOVE + height + BELOW);
    format!(
        "<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" font-size=\"11\" \
         font-family=\"sans-serif\">\n{body}</svg>\n",
        escaped(name)
    )
}

fn x(share: f64) -> f64 {
    LEFT + share * WIDTH
}

fn y(share: f64) -> f64 {
    ABOVE + (1.0 - share) * HEIGHT
}

/// Writing into a text cannot fail.
macro_rules! put {
    ($svg:expr, $($format:tt)*) => { let _ = writeln!($svg, $($format)*); };
}

fn label(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    put!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{LINE_COLOUR}\">{}</text>",
        escaped(text)
    );
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), more: &str) {
    put!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{LINE_COLOUR}\" {more}/>",
        from.0,
        from.1,
        to.0,
        to.1
    );
}

fn bar(svg: &mut String, corner: (f64, f64), width: f64, height: f64, colour: &str, told: &str) {
    put!(
        svg,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"><title>{}</title></rect>",
        corner.0,
        corner.1,
        escaped(told)
    );
}

/// Two axes; `ticks`: text and place of each.
fn axes(svg: &mut String, below: &[(String, f64)], left: &[(String, f64)], unit: &str) {
    line(svg, (x(0.0), y(0.0)), (x(1.0), y(0.0)), "");
    line(svg, (x(0.0), y(0.0)), (x(0.0), y(1.0)), "");
    for (text, place) in below {
        label(svg, x(*place), y(0.0) + 14.0, "middle", text);
    }
    for (text, place) in left {
        label(svg, x(0.0) - 6.0, y(*place) + 4.0, "end", text);
    }
    label(svg, x(0.5), y(0.0) + 29.0, "middle", unit);
}

fn fifths() -> Vec<(String, f64)> {
    (0..=5).map(|n| (format!("{:.1}", f64::from(n) / 5.0), f64::from(n) / 5.0)).collect()
}

fn reliability(scores: &Scores) -> String {
    let mut svg = String::new();
    axes(&mut svg, &fifths(), &fifths(), "confidence; upwards: accuracy");
    line(&mut svg, (x(0.0), y(0.0)), (x(1.0), y(1.0)), "stroke-dasharray=\"4 4\"");
    for bin in scores.bins.iter().filter(|bin| bin.count > 0) {
        let (confidence, accuracy) = (bin.confidence(), bin.accuracy());
        let radius = 4.0 + 14.0 * (bin.count as f64 / scores.count as f64).sqrt();
        line(&mut svg, (x(confidence), y(confidence)), (x(confidence), y(accuracy)), "");
        put!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\" fill=\"{RIGHT_COLOUR}\" fill-opacity=\"0.8\"><title>{} answers: confidence {confidence:.3}, accuracy {accuracy:.3}</title></circle>",
            x(confidence),
            y(accuracy),
            bin.count
        );
    }
    svg
}

/// Right below, wrong above. `most`: the right edge; without it a little more than nearly all values, the rest in the last bar.
fn histogram(unit: &str, right: &[f64], wrong: &[f64], most: Option<f64>) -> String {
    let mut svg = String::new();
    let all = [right, wrong].concat();
    let edge = most.or_else(|| percentile(&all, 0.99)).filter(|edge| *edge > 0.0).unwrap_or(1.0);
    let place = |value: f64| ((value / edge * HISTOGRAM_BINS as f64) as usize).min(HISTOGRAM_BINS - 1);
    let (mut blue, mut orange) = ([0_u32; HISTOGRAM_BINS], [0_u32; HISTOGRAM_BINS]);
    right.iter().for_each(|value| blue[place(*value)] += 1);
    wrong.iter().for_each(|value| orange[place(*value)] += 1);
    let tallest = blue.iter().zip(&orange).map(|(a, b)| a + b).max().unwrap_or(0).max(1);
    let below: Vec<(String, f64)> = (0..=4)
        .map(|n| {
            let share = f64::from(n) / 4.0;
            let value = share * edge;
            let digits = if edge < 2.0 { 2 } else { usize::from(edge < 100.0) };
            (format!("{value:.digits$}"), share)
        })
        .collect();
    let left = [("0".to_owned(), 0.0), (tallest.to_string(), 1.0)];
    axes(&mut svg, &below, &left, &format!("{unit}; blue: right, orange: wrong"));
    let width = WIDTH / HISTOGRAM_BINS as f64;
    for index in 0..HISTOGRAM_BINS {
        let from = index as f64 / HISTOGRAM_BINS as f64;
        let mut base = 0.0;
        for (count, colour, name) in
            [(blue[index], RIGHT_COLOUR, "right"), (orange[index], WRONG_COLOUR, "wrong")]
        {
            if count > 0 {
                let share = f64::from(count) / f64::from(tallest);
                let told = format!("{count} {name} from {:.3} {unit}", from * edge);
                bar(&mut svg, (x(from) + 0.5, y(base + share)), width - 1.0, share * HEIGHT, colour, &told);
                base += share;
            }
        }
    }
    svg
}

const BAR_ROW: f64 = 26.0;

fn bars_height(count: usize) -> f64 {
    BAR_ROW * count as f64
}

/// One row for each, its name within it, the interval as a line.
fn shares(bars: &[Bar]) -> String {
    let mut svg = String::new();
    let bottom = ABOVE + bars_height(bars.len());
    for (text, place) in fifths() {
        line(&mut svg, (x(place), ABOVE), (x(place), bottom), "stroke-opacity=\"0.4\"");
        label(&mut svg, x(place), bottom + 14.0, "middle", &text);
    }
    for (index, (name, share, interval)) in bars.iter().enumerate() {
        let top = ABOVE + BAR_ROW * index as f64 + 3.0;
        let told = format!("{name}: {:.1}%", 100.0 * share);
        bar(&mut svg, (x(0.0), top), share * WIDTH, BAR_ROW - 6.0, RIGHT_COLOUR, &told);
        if let Some((low, high)) = interval {
            let middle = top + (BAR_ROW - 6.0) / 2.0;
            line(&mut svg, (x(*low), middle), (x(*high), middle), "stroke-width=\"2\"");
        }
        put!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"currentColor\">{}</text>",
            x(0.0) + 6.0,
            top + 14.0,
            escaped(&told)
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use decision::statistics::Graded;

    /// Only what XML allows, and every element closed: checked with the parser that reads SVG files for `-I`.
    fn sound(chart: &Chart) -> String {
        let svg = draw(chart, "a \"name\" <&>");
        let file = svg.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1);
        resvg::usvg::Tree::from_str(&file, &resvg::usvg::Options::default()).unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        svg
    }

    #[test]
    fn pictures_are_sound_also_of_nothing_and_of_one() {
        let scores = |rows: &[(f64, usize)]| {
            let rows: Vec<Graded> =
                rows.iter().map(|(p, gold)| Graded::new(vec![*p, 1.0 - p], *gold).unwrap()).collect();
            Box::new(Scores::of(&rows).unwrap())
        };
        sound(&Chart::Reliability(scores(&[(1.0, 0)])));
        let svg = sound(&Chart::Reliability(scores(&[(0.9, 0), (0.9, 1), (0.6, 0)])));
        assert_eq!(svg.matches("<circle").count(), 2);
        sound(&Chart::Histogram { unit: "ms", right: vec![], wrong: vec![], most: None });
        sound(&Chart::Histogram { unit: "ms", right: vec![0.0], wrong: vec![], most: None });
        let svg =
            sound(&Chart::Histogram { unit: "x", right: vec![0.0, 1.0], wrong: vec![1.0], most: Some(1.0) });
        assert_eq!(svg.matches("<rect").count(), 3);
        sound(&Chart::Bars(vec![]));
        let svg =
            sound(&Chart::Bars(vec![("a<b".to_owned(), 0.0, None), ("c".to_owned(), 1.0, Some((0.5, 1.0)))]));
        assert!(svg.contains("c: 100.0%") && svg.contains("a&lt;b: 0.0%"), "{svg}");
    }
}
