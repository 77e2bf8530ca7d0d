"""Schedule "grouped": a decode whose query heads of one key head share each key and value row."""
