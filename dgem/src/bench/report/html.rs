//! The report as one page that needs nothing else: no script, no font, no address of another server.

use std::fmt::Write as _;

use super::{Body, Report, Section, svg};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1c2530;background:#fff}\
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;display:block;overflow-x:auto}\
td,th{padding:.2rem .7rem;text-align:left;border-bottom:1px solid #d8dee6;vertical-align:top}th{font-size:.75rem;color:#5a6876}\
td{font-variant-numeric:tabular-nums}p.note{color:#5a6876;font-size:.85rem;max-width:48rem}svg{max-width:100%;height:auto}\
.pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(22rem,1fr));gap:0 2rem}\
@media(prefers-color-scheme:dark){body{color:#dce3ea;background:#14191f}td,th{border-color:#333d48}th,p.note{color:#98a5b3}}";

/// The whole page. Text from elsewhere is escaped.
pub fn page(report: &Report) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{0}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
        escaped(&report.title)
    );
    let facts: Vec<Vec<String>> =
        report.facts.iter().map(|(name, value)| vec![name.clone(), value.clone()]).collect();
    table(&mut page, &[], &facts);
    let (pictures, tables): (Vec<&Section>, Vec<&Section>) =
        report.sections.iter().partition(|section| matches!(section.body, Body::Chart(_)));
    page.push_str("<div class=\"pictures\">\n");
    pictures.into_iter().for_each(|section| write_section(&mut page, section));
    page.push_str("</div>\n");
    tables.into_iter().for_each(|section| write_section(&mut page, section));
    page.push_str("</body>\n</html>\n");
    page
}

fn write_section(page: &mut String, section: &Section) {
    // Writing into a text cannot fail, here and below.
    let _ = writeln!(page, "<section><h2>{}</h2>", escaped(&section.title));
    match &section.body {
        Body::Table { header, rows } => table(page, header, rows),
        Body::Chart(chart) => page.push_str(&svg::draw(chart, &section.title)),
    }
    if let Some(note) = &section.note {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escaped(note));
    }
    page.push_str("</section>\n");
}

fn table(page: &mut String, header: &[String], rows: &[Vec<String>]) {
    let cells = |tag: &str, cells: &[String]| {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect::<Vec<_>>().concat()
    };
    page.push_str("<table>\n");
    if !header.is_empty() {
        let _ = writeln!(page, "<tr>{}</tr>", cells("th", header));
    }
    for row in rows {
        let _ = writeln!(page, "<tr>{}</tr>", cells("td", row));
    }
    page.push_str("</table>\n");
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::{Chart, Section};
    use super::*;

    #[test]
    fn text_from_elsewhere_cannot_leave_its_place() {
        let evil = "<script>alert(\"x\")</script>&".to_owned();
        let sections = vec![
            Section::table(&evil, &[&evil], vec![vec![evil.clone()]]).with_note(evil.clone()),
            Section::chart(&evil, Chart::Bars(vec![(evil.clone(), 0.5, Some((0.2, 0.8)))]), &evil),
        ];
        let page = page(&Report { title: evil.clone(), facts: vec![(evil.clone(), evil)], sections });
        assert!(!page.contains("<script") && !page.contains("alert(\""), "{page}");
        assert!(page.contains("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;"));
        assert!(!page.contains("http"), "the page loads something");
    }
}
