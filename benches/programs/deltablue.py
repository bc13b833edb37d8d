"""A chain of one-way constraints, planned and executed: classes, inheritance, many small method calls."""


class Variable:
    def __init__(self, name, value):
        self.name, self.value, self.constraints, self.determined, self.mark = name, value, [], None, 0


class Constraint:
    def __init__(self, source, target, strength):
        self.source, self.target, self.strength = source, target, strength
        source.constraints.append(self)
        target.constraints.append(self)

    def weaker(self, other):
        return self.strength < other.strength

    def satisfy(self, mark):
        self.target.mark = mark
        known = self.target.determined
        if known is None or known.weaker(self):
            self.target.determined = self
        return self.target.determined is self

    def execute(self):
        raise NotImplementedError


class Equal(Constraint):
    def execute(self):
        self.target.value = self.source.value


class Scale(Constraint):
    def __init__(self, source, target, strength, factor):
        super().__init__(source, target, strength)
        self.factor = factor

    def execute(self):
        self.target.value = self.source.value * self.factor % 1_000_003


class Planner:
    def __init__(self):
        self.mark = 0

    def plan(self, start):
        self.mark += 1
        todo, plan = [start], []
        while todo:
            for constraint in todo.pop().constraints:
                if constraint.target.mark != self.mark and constraint.satisfy(self.mark):
                    plan.append(constraint)
                    todo.append(constraint.target)
        return plan


def run() -> None:
    variables = [Variable(f"v{i}", i) for i in range(400)]
    for i, (a, b) in enumerate(zip(variables, variables[1:])):
        Equal(a, b, i % 5) if i % 3 else Scale(a, b, i % 5, 3)
    planner = Planner()
    for value in range(60):
        variables[0].value = value
        for constraint in planner.plan(variables[0]):
            constraint.execute()
