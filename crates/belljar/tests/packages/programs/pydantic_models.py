# /// script
# dependencies = ["pydantic>=2", "email-validator"]
# ///
from pydantic import BaseModel, EmailStr, Field, ValidationError


class User(BaseModel):
    name: str
    age: int = Field(ge=0)
    email: EmailStr


assert User(name="Ada", age="36", email="ada@example.org").age == 36
try:
    User(name="Ada", age=-1, email="nowhere")
except ValidationError as error:
    assert sorted(each["loc"][0] for each in error.errors()) == ["age", "email"], error
schema = User.model_json_schema()
assert schema["required"] == ["name", "age", "email"], schema
assert User.model_validate_json('{"name": "x", "age": 1, "email": "a@b.org"}').model_dump()["name"] == "x"
