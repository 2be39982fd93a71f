//! Which variables a template reads, found by walking tera's parsed form: prints, conditions, loops, filter arguments.
//!
//! [`prepare`] also makes `or_default` work on undefined variables. Tera gives that power only to a filter called
//! `default` in first place, so one is put in front of every leading `or_default`. The parsed form is public in tera 1.20
//! but not documented: the workspace pins that version.

use indexmap::{IndexMap, IndexSet};
use serde_json::{Map, Value, json};
use tera::Template;
use tera::ast::{Expr, ExprVal, FunctionCall, Node};

use super::macros::Calls;

/// How a template reads one variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Rendering fails without it.
    Required,
    /// It has a default, or is only read under a condition.
    Optional,
}

/// The variables of a template in the order of their first use.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    uses: IndexMap<String, Use>,
    /// Every path that is read, such as `a.b`.
    paths: IndexSet<String>,
    /// The paths that loops run over.
    lists: IndexSet<String>,
}

impl Usage {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Use)> {
        self.uses.iter().map(|(name, usage)| (name.as_str(), *usage))
    }

    /// A value of the shape in which the template reads this variable: an object for `name.key`, a list for a loop, else a text.
    pub(super) fn placeholder(&self, name: &str) -> Value {
        let mut value = self.leaf(name);
        for path in self.paths.iter().filter(|path| root_of(path) == name && !path.contains('[')) {
            let keys: Vec<&str> = path.split('.').skip(1).collect();
            let mut at = &mut value;
            for key in &keys {
                if !at.is_object() {
                    *at = Value::Object(Map::new());
                }
                let Value::Object(map) = at else { break };
                at = map.entry(*key).or_insert(Value::Null);
            }
            if !keys.is_empty() && at.is_null() {
                *at = self.leaf(path);
            }
        }
        value
    }

    fn leaf(&self, path: &str) -> Value {
        if self.lists.contains(path) {
            json!(["first", "second"])
        } else {
            json!(format!("first {path}, second {path}"))
        }
    }
}

/// Collects the variables and the calls between macros, and rewrites leading `or_default` filters.
pub(super) fn prepare(template: &mut Template) -> (Usage, Calls) {
    let mut walk = Walk::default();
    walk.body(&mut template.ast);
    let mut calls = Calls::default();
    let mut definitions: Vec<_> = template.macros.iter_mut().collect();
    definitions.sort_by(|left, right| left.0.cmp(right.0));
    for (name, definition) in definitions {
        // The copies that calls run; their variables were already counted in the tree above.
        let mut inside = Walk::default();
        inside.body(&mut definition.body);
        calls.insert(name.clone(), inside.called);
    }
    (walk.usage, calls)
}

/// The variable a dotted or indexed path starts from.
pub(super) fn root_of(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap_or(path)
}

#[derive(Default)]
struct Walk {
    usage: Usage,
    /// Macros that are called.
    called: IndexSet<String>,
    /// Names that `set`, loops and macro arguments define.
    bound: Vec<String>,
    /// Depth of `if` branches around the current node.
    conditional: usize,
}

impl Walk {
    fn body(&mut self, nodes: &mut [Node]) {
        for node in nodes {
            self.node(node);
        }
    }

    fn node(&mut self, node: &mut Node) {
        match node {
            Node::VariableBlock(_, expr) => self.expr(expr),
            Node::Set(_, set) => {
                self.expr(&mut set.value);
                self.bound.push(set.key.clone());
            }
            Node::Forloop(_, forloop, _) => {
                if let ExprVal::Ident(path) = &forloop.container.val {
                    self.usage.lists.insert(path.clone());
                }
                self.expr(&mut forloop.container);
                let outer = self.bound.len();
                self.bound.extend(forloop.key.clone());
                self.bound.extend([forloop.value.clone(), "loop".to_owned()]);
                self.body(&mut forloop.body);
                self.bound.truncate(outer);
                if let Some(body) = &mut forloop.empty_body {
                    self.body(body);
                }
            }
            Node::If(branches, _) => {
                for (index, (_, condition, body)) in branches.conditions.iter_mut().enumerate() {
                    self.conditional += usize::from(index > 0);
                    self.condition(condition);
                    self.conditional += usize::from(index == 0);
                    self.body(body);
                    self.conditional -= 1;
                }
                if let Some((_, body)) = &mut branches.otherwise {
                    self.conditional += 1;
                    self.body(body);
                    self.conditional -= 1;
                }
            }
            Node::FilterSection(_, section, _) => {
                self.arguments(&mut section.filter);
                self.body(&mut section.body);
            }
            Node::Block(_, block, _) => self.body(&mut block.body),
            Node::MacroDefinition(_, definition, _) => {
                let outer = self.bound.len();
                self.bound.extend(definition.args.keys().cloned());
                self.body(&mut definition.body);
                self.bound.truncate(outer);
            }
            _ => {}
        }
    }

    /// A condition: there a bare name may be undefined, tera takes it for false.
    fn condition(&mut self, expr: &mut Expr) {
        match &mut expr.val {
            ExprVal::Ident(path) if expr.filters.is_empty() => self.name(path, true),
            ExprVal::Logic(logic)
                if matches!(logic.operator, tera::ast::LogicOperator::And | tera::ast::LogicOperator::Or) =>
            {
                self.condition(&mut logic.lhs);
                self.condition(&mut logic.rhs);
            }
            _ => self.expr(expr),
        }
    }

    fn expr(&mut self, expr: &mut Expr) {
        if let Some(leading) = expr.filters.first().filter(|filter| filter.name == "or_default") {
            expr.filters.insert(0, FunctionCall { name: "default".to_owned(), args: leading.args.clone() });
        }
        let has_default = expr.has_default_filter() || expr.negated;
        self.value(&mut expr.val, has_default);
        for filter in &mut expr.filters {
            self.arguments(filter);
        }
    }

    fn value(&mut self, value: &mut ExprVal, has_default: bool) {
        match value {
            ExprVal::Ident(path) => self.name(path, has_default),
            ExprVal::Math(math) => {
                self.expr(&mut math.lhs);
                self.expr(&mut math.rhs);
            }
            ExprVal::Logic(logic) => {
                self.expr(&mut logic.lhs);
                self.expr(&mut logic.rhs);
            }
            ExprVal::In(test) => {
                self.expr(&mut test.lhs);
                self.expr(&mut test.rhs);
            }
            ExprVal::Test(test) => {
                self.name(&test.ident, matches!(test.name.as_str(), "defined" | "undefined"));
                self.all(&mut test.args);
            }
            ExprVal::MacroCall(call) => {
                self.called.insert(call.name.clone());
                self.all(sorted(&mut call.args));
            }
            ExprVal::FunctionCall(call) => self.arguments(call),
            ExprVal::Array(items) => self.all(items),
            ExprVal::StringConcat(concat) => {
                for value in &mut concat.values {
                    self.value(value, false);
                }
            }
            ExprVal::String(_) | ExprVal::Int(_) | ExprVal::Float(_) | ExprVal::Bool(_) => {}
        }
    }

    fn arguments(&mut self, call: &mut FunctionCall) {
        self.all(sorted(&mut call.args));
    }

    fn all<'a>(&mut self, exprs: impl IntoIterator<Item = &'a mut Expr>) {
        for expr in exprs {
            self.expr(expr);
        }
    }

    fn name(&mut self, path: &str, may_be_missing: bool) {
        let root = root_of(path);
        if root == "__tera_context" || self.bound.iter().any(|bound| bound == root) {
            return;
        }
        let wanted = if may_be_missing || self.conditional > 0 { Use::Optional } else { Use::Required };
        self.usage.paths.insert(path.to_owned());
        let known = self.usage.uses.entry(root.to_owned()).or_insert(wanted);
        if wanted == Use::Required {
            *known = Use::Required;
        }
    }
}

/// Arguments by name, because the parser keeps them in a map without order.
fn sorted(arguments: &mut std::collections::HashMap<String, Expr>) -> Vec<&mut Expr> {
    let mut pairs: Vec<_> = arguments.iter_mut().collect();
    pairs.sort_by(|left, right| left.0.cmp(right.0));
    pairs.into_iter().map(|(_, expr)| expr).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_of(source: &str) -> Vec<(String, Use)> {
        let mut template = Template::new("t", None, source).unwrap();
        prepare(&mut template).0.iter().map(|(name, usage)| (name.to_owned(), usage)).collect()
    }

    #[test]
    fn variables_are_found_in_every_place() {
        let found = usage_of(
            "{{ a | json_encode }}{{ b | default(value=c) }}{{ d | or_default(value='x') | upper }}{% for o in e %}{{ o }}{{ loop.index }}{% endfor %}\
             {% if f and g == h %}{{ i }}{% elif j %}{% else %}{{ k.x[0] }}{% endif %}{% set l = m ~ '!' %}{{ l }}{{ n | replace(from='a', to=p) }}{% if q is defined %}{% endif %}{{ i }}",
        );
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "m", "n", "p", "q"]);
        let optional: Vec<&str> = found
            .iter()
            .filter(|(_, usage)| *usage == Use::Optional)
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(optional, ["b", "d", "f", "j", "k", "q"]);
    }

    #[test]
    fn a_placeholder_has_the_shape_that_is_read() {
        let mut template = Template::new(
            "t",
            None,
            "{{ a }}{{ b.c.d }}{{ b.e }}{% for x in f %}{% endfor %}{% for x in b.g %}{% endfor %}{{ h[0] }}",
        )
        .unwrap();
        let usage = prepare(&mut template).0;
        assert_eq!(usage.placeholder("a"), json!("first a, second a"));
        assert_eq!(
            usage.placeholder("b"),
            json!({"c": {"d": "first b.c.d, second b.c.d"}, "e": "first b.e, second b.e", "g": ["first", "second"]})
        );
        assert_eq!(usage.placeholder("f"), json!(["first", "second"]));
        assert!(usage.placeholder("h").is_string());
    }

    #[test]
    fn a_loop_variable_is_no_variable_of_the_template_but_its_name_may_be_one_outside() {
        assert_eq!(usage_of("{% for x in xs %}{{ x }}{% endfor %}"), [("xs".to_owned(), Use::Required)]);
        assert_eq!(usage_of("{% for x in xs %}{{ x }}{% endfor %}{{ x }}").len(), 2);
    }
}
